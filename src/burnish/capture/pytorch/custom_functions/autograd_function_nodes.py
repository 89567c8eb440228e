"""Custom ``torch.autograd.Function``s: one node each, which a compiler may trace where that is safe.

    Scaled.apply(x, 2.0)        apply_Scaled = apply_Scaled(x, 2.0)        the node; its target runs ``apply`` for real

A node runs the user's ``forward`` natively on every run, and autograd runs ``backward`` when it reaches it. So their
reads need no guard. A compiler that wants to fuse their operations runs them once, on tensors without data, and the
values they read become part of compiled code. That is correct for tensor code that reads only its arguments, ``ctx``,
torch, constants, and functions with the same property. The bytecode shows whether this holds
(``autograd_function_traceability``). Values read by name are recorded (``Names``) and guarded together. A function with
other side effects or reads (it prints, branches on data, hooks tensors) stays native: compilers run it as it is,
between compiled parts.
"""

from __future__ import annotations

import inspect
import weakref
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from ....runtime.argument_trees import mapped
from ....runtime.segment_records import ResultsChanged
from ... import breaks
from ...engine.break_signals import BreakAfterOperation
from ...engine.torch_call_records import NotRecordable
from ...interpreter.frames import MISSING
from ...numbers.live_scalars import Expression, Live, plain_of
from .. import collectives
from ..opaque_nodes import OpaqueCall, call_in_graph, refuse_after_writes, settle_returned_sizes, stop_after_writes
from .autograd_function_side_effects import what_is_written
from .autograd_function_traceability import CHANGING, Names, why_not_traceable

if TYPE_CHECKING:
    from .runs_without_data import RunWithoutData


def apply(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """``cls.apply(*args, **kwargs)`` while tracing."""
    from . import unused_outputs  # few programs have functions of their own
    from .autograd_function_argument_side_effects import written_through

    if (
        cls.__module__ == collectives.DIFFERENTIABLE
        and (made := collectives.apply(m, cls, args, kwargs)) is not MISSING
    ):
        return made
    names = Names(cls)
    held = {k: value for k, value in enumerate(args) if is_outside_object(m, value)}
    if cls in CHANGING:
        why: str | None = "what it reads changes from call to call"
    elif held:
        why = f"it is given a {type(next(iter(held.values()))).__qualname__}"
    else:
        may_see_unused = m.region is None and not m.options.runs_python and unused_outputs.can_be_checked(m)
        why = why_not_traceable(cls, names, len(args), may_see_unused)
    written = written_through(cls, (*args, *kwargs.values())) or (None if why is None else what_is_written(cls))
    if written is not None:
        m.stop(breaks.OPAQUE_FUNCTION, f"{cls.__qualname__}.apply: {written}")
    if why is not None and not m.options.runs_python:
        m.stop(breaks.OPAQUE_FUNCTION, f"{cls.__qualname__}.apply: the backend runs no Python, and {why}")
    from .runs_without_data import RunWithoutData

    call = CustomCall(cls, why, RunWithoutData(cls.apply, mapped(args, Live, plain_of)) if why is None else None)
    call.writes = names.writes
    if getattr(m.region, "runs_both", False):
        m.region.before_node(call)
    if held:
        call.function = with_held(cls, held)
        args = tuple(value for k, value in enumerate(args) if k not in held)
        for value in map(owner_of, held.values()):
            m.heap.guard("is", m.heap.origin_of(value).source, value)
    if why is None:
        m.heap.guard("outcome", None, (Expression(names.are_as_they_were, ()), True))
        if names.sees_unused is not None:
            m.traced_hooks.append(unused_outputs.SeesUnused(names.sees_unused))
    reads = why is not None or names.may_be_written()
    (SELF_CONTAINED.discard if reads else SELF_CONTAINED.add)(cls)
    live = [a for a in (*args, *kwargs.values()) if isinstance(a, Live)]
    if live and m.region is None and not kwargs and cls not in SIZED_BY_NUMBER and all(may_change(m, a) for a in live):
        if reads:
            stop_after_writes(m, call.__name__)
        return call_with_numbers(m, call, args)
    return call_in_graph(m, call, args, kwargs, reads)


def may_change(m: Any, number: Live) -> bool:
    """Whether a number may differ in the next run of the node. Other backends run the function with the number, or
    trace it with a symbol; ours would trace it with the integer of this call. Where sizes are symbolic, the results
    are known for numbers that are computed from them."""
    if number.expression.in_graph or not isinstance(number, float if m.options.runs_python else (int, float)):
        return False
    return not has_symbols(m) or bool(m.symbolic_sizes.symbols.takes(number))


def has_symbols(m: Any) -> bool:
    return m.symbolic_sizes is not None and bool(m.symbolic_sizes.symbols.is_any)


def is_outside_object(m: Any, value: Any) -> bool:
    """Whether an argument is a module, or another object from outside that a graph cannot contain, or a method of one.
    The function gets that very object in each run."""
    value = owner_of(value)
    if isinstance(value, (torch.Tensor, Live, type, *CONTAINERS)) or m.is_constant(value):
        return False
    return m.heap.origin_of(value) is not None and (isinstance(value, torch.nn.Module) or hasattr(value, "__dict__"))


def owner_of(value: Any) -> Any:
    """The object that a method of its class is bound to: each read makes another method. Other values unchanged."""
    if type(value) is not MethodType:
        return value
    function = value.__func__
    is_of_class = inspect.getattr_static(type(value.__self__), getattr(function, "__name__", ""), None) is function
    return value.__self__ if is_of_class else value


CONTAINERS = (list, tuple, dict, set, frozenset)


def with_held(cls: type, held: dict[int, Any]) -> Any:
    """``cls.apply`` with these of its arguments filled in."""

    def apply_with_held(*others: Any) -> Any:
        rest, count = iter(others), len(held) + len(others)
        return cls.apply(*[held[k] if k in held else next(rest) for k in range(count)])  # type: ignore[attr-defined]

    return apply_with_held


def call_with_numbers(m: Any, call: CustomCall, args: tuple) -> Any:
    """Call with floats that change from call to call. If they change more than the values of the results, the node
    notices, and its segment runs as plain Python."""
    mark = m.recorder.mark()
    for value in args:
        m.heap.expose(value)
    try:
        value = call.function(*map(plain_of, args))
    except Exception as error:
        trouble = error
    else:
        call.expect(m, value, (tuple(map(plain_of, args)), {}))
        call.sizes = None if has_symbols(m) else layouts_in(value)
        settle_returned_sizes(m, call, value)
        try:
            m.recorder.record(call, args, {}, value, live_allowed=True)
            refuse_after_writes(m, call)
        except NotRecordable as error:
            m.recorder.undo_to(mark)
            m.late(breaks.OPAQUE_CALL, f"{call.__name__}: {error}", value)
        return value
    raise BreakAfterOperation(breaks.TENSOR_ERROR, f"{type(trouble).__name__}: {trouble}", error=trouble)


class CustomCall(OpaqueCall):
    """The target of a node. ``why_not_traceable``: why compilers may not run it on tensors without data.
    ``without_data``: the first call, which may run without data once it has run."""

    def __init__(self, cls: type, why_not_traceable: str | None, without_data: RunWithoutData | None):
        super().__init__(cls.apply, f"apply_{cls.__name__}")
        self.cls = cls
        self.why_not_traceable, self.without_data = why_not_traceable, without_data
        self.has_varying_types = without_data is None
        self.stands_alone = why_not_traceable is not None
        self.writes = True
        """Whether it may write to a tensor that it has not made."""
        self.sizes: Any = None  # of the results, if numbers among the arguments change

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.checked(self.function(*args, **kwargs), (args, kwargs))
        if self.sizes is not None and layouts_in(made) != self.sizes:
            SIZED_BY_NUMBER.add(self.cls)
            raise ResultsChanged(f"{self.__name__} returns other tensors than for another number")
        return made

    def types_may_vary(self) -> bool:
        """Whether types of its results may depend on data."""
        if self.without_data is not None:
            self.has_varying_types, self.without_data = not self.without_data.succeeds(), None
        return self.has_varying_types

    def is_compared(self) -> bool:
        return self.types_may_vary() or self.sizes is not None

    def may_vary(self, m: Any, number: Live) -> bool:
        """Compilers trace the others with the number of this call."""
        return self.why_not_traceable is not None and super().may_vary(m, number)

    def expect(self, m: Any, made: Any, given: Any) -> None:
        if self.types_may_vary():
            super().expect(m, made, given)


def layouts_in(made: Any) -> Any:
    if isinstance(made, torch.Tensor):
        return made.dtype, tuple(made.shape), made.stride() if made.layout is torch.strided else None
    return tuple(map(layouts_in, made)) if isinstance(made, (tuple, list)) else made


SIZED_BY_NUMBER: weakref.WeakSet = weakref.WeakSet()
"""Functions whose results had other sizes for another number: numbers that they are given are constants."""
SELF_CONTAINED: weakref.WeakSet = weakref.WeakSet()
"""Functions that read nothing the program may write."""


def may_read_in_backward(node: Any) -> bool:
    """Whether a node of the autograd graph runs Python that may read state written by the program."""
    return (
        isinstance(node, torch.autograd.function.BackwardCFunction)
        and getattr(node, "_forward_cls", None) not in SELF_CONTAINED
    )
