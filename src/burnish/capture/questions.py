"""Questions that models ask again and again, and that have one answer during a trace.

``inspect.signature`` of a function takes longer than interpreting a hundred instructions, and Transformers asks it in
every layer; ``torch.jit.is_tracing`` cannot touch a tensor, so nobody has to watch it. Entries of ``builtin_calls``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from . import calls
from .heap import MISSING


def _signature(m: Any, args: tuple, kwargs: dict) -> Any:
    function = args[0].__func__ if len(args) == 1 and type(args[0]) is MethodType else args[0] if args else None
    if len(args) != 1 or kwargs or type(function) is not FunctionType or function.__dict__:
        return MISSING
    key = (type(args[0]), id(function))
    state = (function, function.__code__, function.__defaults__, function.__kwdefaults__, function.__annotations__)
    found = m.signatures.get(key)
    if found is not None and all([a is b for a, b in zip(found[1], state, strict=True)]):
        return found[0]
    answer = calls.call_leaf(m, inspect.signature, args, kwargs)
    m.signatures[key] = answer, state
    return answer


def _is_tracing(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.plainly(torch.jit.is_tracing, *args, **kwargs)


HANDLERS: dict[Callable, Callable] = {inspect.signature: _signature, torch.jit.is_tracing: _is_tracing}
