"""Constant queries: frequent questions of models, with one result during a trace.

``inspect.signature`` of a function takes longer than interpreting a hundred instructions, and Transformers calls it in
every layer. ``torch.jit.is_tracing`` cannot touch a tensor, so it needs no supervision. The properties of a GPU do not
change, and the current GPU is guarded: `torch.autocast` asks for both. The recursion limit and the
thread are guarded as well. Entries of ``builtin_functions``.
"""

from __future__ import annotations

import inspect
import operator
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from ..interpreter.frames import MISSING
from ..numbers.live_scalars import Expression
from ..python.calls import native_call_rules, reflection
from ..python.calls.reflection import PARTS


def _signature(m: Any, args: tuple, kwargs: dict) -> Any:
    chain = reflection.chain_of(m, args[0]) if len(args) == 1 and not kwargs else None
    if chain is None:
        return MISSING
    key = (type(args[0]), id(chain[0]))
    state = [part for function in chain for part in (function, *(getattr(function, name) for name in PARTS))]
    found = m.signatures.get(key)
    if found is not None and list(map(id, found[1])) == list(map(id, state)):
        return found[0]
    answer = native_call_rules.call_leaf(m, inspect.signature, args, kwargs)
    m.signatures[key] = answer, state
    return answer


def ask_plainly(question: Callable) -> Callable:
    """For queries that are answered natively, whatever they are written in."""
    return lambda m, args, kwargs: m.plainly(question, *args, **kwargs)


def _how_many_gpus(m: Any, args: tuple, kwargs: dict) -> Any:
    if not torch.cuda.is_initialized():
        if torch.version.hip or args or kwargs:
            return MISSING  # another variable, too, may still change the number
        m.guard_outcome(Expression(operator.eq, (Expression(visible_gpus, ()), visible_gpus())), True)
    return m.plainly(torch.cuda.device_count, *args, **kwargs)


def visible_gpus() -> tuple[str | None, bool]:
    """What the number of GPUs follows from: the variable, until CUDA is initialized."""
    return os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.is_initialized()


def is_current_gpu(index: int) -> bool:
    return torch.cuda.current_device() == index


def _about_the_gpu(question: Callable) -> Callable:
    """For queries with a result that depends on the current GPU."""

    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        if not torch.cuda.is_initialized() or any(type(a) is not int for a in (*args, *kwargs.values())):
            return MISSING  # the call would initialize CUDA, which is for the program to do
        m.guard_outcome(Expression(is_current_gpu, (torch.cuda.current_device(),)), True)
        return m.plainly(question, *args, **kwargs)

    return handler


MOST_ANSWERS = 4
"""With so many segments for as many threads, the next one ends before the question, and serves all threads."""


def asked_in_each_call(query: Callable[[], int]) -> Callable:
    """A number that another thread, or a setting, may change: a constant while it is the same."""

    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        if args or kwargs or m.earlier_segments >= MOST_ANSWERS:
            return MISSING
        found = query()
        m.guard_outcome(Expression(operator.eq, (Expression(query, ()), found)), True)
        return found

    return handler


HANDLERS: dict[Callable, Callable] = {
    inspect.signature: _signature,
    torch.jit.is_tracing: ask_plainly(torch.jit.is_tracing),
    # Lightning makes torch query the driver's library instead, which capture cannot trace.
    torch.cuda.is_available: ask_plainly(torch.cuda.is_available),
    torch.cuda.device_count: _how_many_gpus,
}
HANDLERS.update(
    (question, _about_the_gpu(question))
    for question in (
        torch.cuda.current_device,
        torch.cuda.get_device_capability,
        torch.cuda.get_device_name,
        torch.cuda.is_bf16_supported,
        torch.cuda.get_device_properties,
    )
)
BUILTINS: dict[Callable, Callable] = {
    query: asked_in_each_call(query) for query in (sys.getrecursionlimit, threading.get_ident)
}
