"""Opaque nodes: Python that runs natively inside the graph, every time.

A custom ``autograd.Function``, a ``torch.func`` transform or a function the user allowed in the graph is one node whose
target is the Python callable itself. It runs for real on each run, so nothing it reads needs a guard; but the callable
must be the same object next time, or one that can be made again (``lifted_functions.py``).
"""

from __future__ import annotations

import types
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from .. import breaks
from ..interpreter.frames import cell_value
from ..numbers.live import Live
from ..trust import is_trusted
from .custom_writes import written_by

# torch.func functions that answer a function: making it computes nothing.
MAKERS = frozenset("vmap grad grad_and_value jacrev jacfwd hessian functionalize".split())
IMMEDIATE = (int, float, bool, str, type(None), torch.dtype, torch.device, type)


class OpaqueCall:
    """A callable with a name a graph can print. ``held`` are those of its first arguments that a graph cannot print,
    by their places: functions, which the guards know.

    Compilers run it as it is and compile what is around it (``runtime/tensor_state.py``)."""

    stands_alone = True

    def __init__(self, function: Callable, name: str, held: dict[int, Any] | None = None):
        self.function, self.held = function, held or {}
        self.__name__ = self.__qualname__ = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
        self.__module__ = __name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for place, value in self.held.items():
            given.insert(place, value)
        return self.function(*given, **kwargs)


def stop_after_writes(m: Any, name: str) -> None:
    """Before Python that the graph runs. What the program has written by then is written when the graph has run."""
    if m.heap.has_written():
        m.stop(breaks.OPAQUE_CALL, f"{name}, which may read what was just written")


def call_in_graph(m: Any, function: Any, args: tuple, kwargs: dict, reads: bool = True) -> Any:
    """Run ``function`` without looking inside and write it down as one node. ``reads``: whether it may read more than
    it is given."""
    from ..recorder import NotRecordable
    from ..tracer import Late

    name = getattr(function, "__qualname__", str(function))
    if getattr(m.region, "runs_both", False):
        m.region.refuse(f"a call of {name}")  # of which nobody knows what else it does
    if reads:
        stop_after_writes(m, name)
    mark = m.recorder.mark()
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
    plain_args = tuple(a.settle() if isinstance(a, Live) else a for a in args)
    try:
        value = function(*plain_args, **kwargs)
    except Exception as error:
        trouble = error
    else:
        try:
            m.recorder.record(function, plain_args, kwargs, value, live_allowed=False)
            if has_functions(value):
                raise NotRecordable("it answers with a function that holds tensors of this run")
        except Exception as error:
            m.recorder.undo_to(mark)
            m.late(breaks.OPAQUE_CALL, f"{name}: {error}", value)
        return value
    raise Late(breaks.TENSOR_ERROR, f"{type(trouble).__name__}: {trouble}", error=trouble)


def has_functions(value: Any) -> bool:
    """As ``torch.func.vjp`` answers."""
    if isinstance(value, (tuple, list)):
        return any(map(has_functions, value))
    return isinstance(value, FunctionType)


def call_transform(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """``torch.func``: making a transformed function, or calling one."""
    name = function.__code__.co_name
    if name in MAKERS and not any(isinstance(a, torch.Tensor) for a in args):
        return m.made(m.plainly(function, *args, **kwargs))
    why = "the backend runs no Python" if not m.options.runs_python else why_not_self_contained(m, function)
    if why is None:
        for value in (*args, *kwargs.values()):
            if isinstance(value, (FunctionType, types.MethodType)):
                why = why_not_self_contained(m, value)
    held = {k: value for k, value in enumerate(args) if callable(value) and not isinstance(value, torch.Tensor)}
    rest = tuple(value for k, value in enumerate(args) if k not in held)
    if why is None:
        why = next(filter(None, (written_by(one, set()) for one in (function, *held.values()))), None)
        if why is not None:
            m.stop(breaks.OPAQUE_FUNCTION, f"torch.func's {name}: {why}")
        return call_in_graph(m, OpaqueCall(function, name, held), rest, kwargs)
    if not m.options.runs_python:
        m.stop(breaks.OPAQUE_FUNCTION, f"torch.func's {name}: {why}")
    return call_lifted(m, function, name, held, rest, kwargs)


def call_lifted(m: Any, function: FunctionType, name: str, held: dict[int, Any], args: tuple, kwargs: dict) -> Any:
    from .lifted_functions import NotLifted, lifted

    try:
        call, given = lifted(m, function, name, held)
    except NotLifted as error:
        why = str(error)
    else:
        return call_in_graph(m, call, (*given, *args), kwargs)
    return m.stop(breaks.OPAQUE_FUNCTION, f"torch.func's {name}: {why}")


def is_native(value: Any) -> bool:
    """A function written in C that is the same for the life of the process (``torch.mul``, ``torch.Tensor.add``), or a
    module, which the function reads when it runs."""
    return isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType, types.ModuleType)) or isinstance(
        value, types.BuiltinFunctionType) and (value.__self__ is None or isinstance(value.__self__, (
            types.ModuleType, type)))


def why_not_self_contained(m: Any, function: Any, depth: int = 0) -> str | None:
    """Why a callable cannot be the target of a node on later runs."""
    if not isinstance(function, FunctionType) or depth > 8:
        return f"a {type(function).__qualname__} may differ on the next run"
    if id(function) not in m.heap.fresh and id(function) not in m.heap.pinned_functions \
            and not is_trusted(function.__globals__.get("__name__")):
        return f"{function.__qualname__} is made anew by the code around"
    if id(function) in m.heap.pinned_functions:
        return None  # the very object is guarded; its cells are read when it runs
    for cell in function.__closure__ or ():
        value = cell_value(cell)
        parts = value if isinstance(value, (tuple, list)) else (value,)
        for part in parts:
            if isinstance(part, IMMEDIATE) and not isinstance(part, Live) or part is function or is_native(part):
                continue
            if isinstance(part, FunctionType):
                why = why_not_self_contained(m, part, depth + 1)
                if why is not None:
                    return why
                continue
            return f"{function.__qualname__} holds a {type(part).__qualname__}"
    return None
