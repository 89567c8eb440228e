"""Opaque nodes: Python that runs natively inside the graph, every time.

A custom ``autograd.Function``, a ``torch.func`` transform or a function the user allowed in the graph is one node whose
target is the Python callable itself. It runs for real on each run, so the values that it reads need no guards. But the
callable and its arguments must be the same objects next time, or be rebuildable (``lambda_lifting``). And its
results must be of the same kind: the rest of the graph was made for their types, shapes and strides. So each run
compares them (``facts_of``), and if they differ its segment is abandoned. Numbers among the arguments may differ from
run to run, until results have.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from ...errors import InternalError
from ...runtime.argument_trees import mapped
from ...runtime.segment_records import ResultsChanged
from ...tensors.eager_strides import packed_order
from .. import breaks
from ..engine.break_signals import BreakAfterOperation
from ..engine.torch_call_records import NotRecordable
from ..guards.tensor_metadata import TENSOR_TYPES
from ..numbers.live_scalars import Live, LiveStr, plain_of, settled
from . import function_modes, writes_of_calls
from .number_arguments import OPERATORS

# torch.func functions that return a function: making it computes nothing.
IMMEDIATE = (int, float, bool, str, type(None), torch.dtype, torch.device, type)


class OpaqueCall:
    """A callable with a name a graph can print. ``expected``: the facts of its results that the graph relies on.
    Compilers run it unchanged and compile the code around it (``compiler/uncompiled_calls.py``)."""

    stands_alone = True

    def __init__(self, function: Callable, name: str):
        self.function = function
        self.expected: Any = None
        self.sizes_are_open = False
        self.expected_at: tuple[Any, Any] | None = None
        """With symbolic sizes: those of the arguments when the call was traced, and all facts of its results then."""
        self.numbers_vary = False
        """Whether numbers among the arguments may differ, because a guard says what the results look like."""
        name = name.replace("<lambda>", "lambda_function")  # names that end in "_" are those of writes
        self.__name__ = self.__qualname__ = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
        self.__module__ = __name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.checked(self.function(*args, **kwargs), (args, kwargs))

    def is_compared(self) -> bool:
        return True

    def compares_all(self) -> bool:
        """Whether each run compares all facts of the results."""
        return self.expected is not None and not self.sizes_are_open

    def may_vary(self, m: Any, number: Live) -> bool:
        """Whether a number among the arguments may differ in the next run."""
        return self.numbers_vary or m.options.runs_python and self.is_compared() and is_compared_with(m, number)

    def expect(self, m: Any, made: Any, given: Any) -> None:
        self.sizes_are_open = m.symbolic_sizes is not None and m.symbolic_sizes.symbols.is_any
        self.expected = facts_of(made, self.sizes_are_open)
        if self.sizes_are_open:
            self.expected_at = sizes_in(given), facts_of(made, False)

    def checked(self, made: Any, given: Any) -> Any:
        if self.expected is not None:
            self.compare(facts_of(made, self.sizes_are_open), self.expected)
            if self.expected_at is not None and sizes_in(given) == self.expected_at[0]:  # only data differs
                self.compare(facts_of(made, False), self.expected_at[1])
        return made

    def compare(self, found: Any, expected: Any) -> None:
        if found != expected and found is not None:
            raise ResultsChanged(f"{self.__name__} returned {found}, and {expected} before")


def compares_results(target: Any) -> bool:
    """Whether a node's target may raise ResultsChanged."""
    return isinstance(target, OpaqueCall) and target.is_compared()


def facts_of(made: Any, sizes_are_open: bool) -> Any:
    """All facts of a call's results except the data. None for tensors that a compiler uses for queries."""
    if type(made) in TENSOR_TYPES:
        if made.is_meta:
            return None
        if made.layout is not torch.strided:
            return made.dtype, made.device, made.requires_grad, made.layout, made.ndim
        if sizes_are_open:
            order = made.is_contiguous() or packed_order(tuple(made.shape), made.stride())
            return made.dtype, made.device, made.requires_grad, made.ndim, order
        return made.dtype, made.device, made.requires_grad, made.shape, made.stride()
    if isinstance(made, torch.Tensor):
        return None
    if isinstance(made, dict):
        parts = facts_of(tuple(made.values()), sizes_are_open)
        return None if parts is None else (type(made), tuple(made), parts)
    if isinstance(made, (tuple, list)):
        found = tuple([facts_of(part, sizes_are_open) for part in made])
        return None if None in found else (type(made), found)
    return type(made), made


def sizes_in(values: Any) -> Any:
    """All that sizes of a call's results follow from, if they do not depend on data."""
    if type(values) in TENSOR_TYPES:
        return tuple(values.shape)
    if isinstance(values, dict):
        return tuple(map(sizes_in, values.values()))
    if isinstance(values, (tuple, list)):
        return tuple(map(sizes_in, values))
    return values if isinstance(values, (int, float)) else None


def why_not_compared(made: Any) -> str | None:
    """Why the next run's results cannot be compared with these."""
    if isinstance(made, FunctionType):
        return "it returns a function that holds tensors of this run"  # e.g. torch.func.vjp
    if isinstance(made, (tuple, list, dict)):
        return next(filter(None, map(why_not_compared, made.values() if isinstance(made, dict) else made)), None)
    return None if isinstance(made, (torch.Tensor, *IMMEDIATE)) else f"it returns a {type(made).__qualname__}"


def stop_after_writes(m: Any, name: str) -> None:
    """Called before Python that the graph runs. Writes of the program so far only take effect after the graph."""
    if m.heap.has_written():
        m.stop(breaks.OPAQUE_CALL, f"{name}, which may read what was just written")


def is_compared_with(m: Any, number: Live) -> bool:
    """Whether comparing results is enough if a number differs. Where sizes are symbolic, those of results are known
    only for numbers that are computed from them."""
    if number.expression.in_graph or isinstance(number, LiveStr) or not m.capabilities.numbers_vary_in_nodes:
        return False
    symbols = m.symbolic_sizes and m.symbolic_sizes.symbols
    return not symbols or not symbols.is_any or bool(symbols.takes(number))


CONTAINERS = (list, tuple, dict, set, frozenset)


def with_numbers(m: Any, function: OpaqueCall, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments, with numbers settled that may not vary. A function of the user's gets the very lists of the
    program. It may put a number into one, so all are settled then."""
    is_operator = isinstance(function.function, OPERATORS)
    has_lists = not is_operator and any([isinstance(value, CONTAINERS) for value in (*args, *kwargs.values())])

    def kept(number: Live) -> Any:
        return number if not has_lists and function.may_vary(m, number) else number.settle()

    def given(value: Any) -> Any:
        if issubclass(type(value), Live) or is_operator:
            return mapped(value, Live, kept)
        mapped(value, Live, settled)
        return value

    return tuple(map(given, args)), {key: given(value) for key, value in kwargs.items()}


def call_in_graph(m: Any, function: OpaqueCall, args: tuple, kwargs: dict, reads: bool = True) -> Any:
    """Run ``function`` untraced and record it as one node. ``reads``: whether it may read more than its arguments."""
    name = function.__qualname__
    if getattr(m.region, "runs_both", False):
        m.region.before_node(function)
        m.region.will_call(function, args, kwargs)
    function_modes.refuse(m, name)
    if reads:
        stop_after_writes(m, name)
    mark = m.recorder.mark()
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
    args, kwargs = with_numbers(m, function, args, kwargs)
    versions = m.recorder.versions_in((args, kwargs))
    try:
        given = args, kwargs
        if isinstance(function.function, OPERATORS):
            given = mapped(given, Live, plain_of)
        value = function(*map(plain_of, given[0]), **{key: plain_of(part) for key, part in given[1].items()})
    except InternalError:
        raise
    except Exception as error:
        trouble = error
    else:
        if facts_of(value, False) is None or returns_known(m, function, value):  # which is not compared
            mapped((args, kwargs), Live, settled)
        settle_returned_sizes(m, function, value)
        try:
            m.recorder.record(function, args, kwargs, value, live_allowed=True)
            m.recorder.note_versions(mark[1], versions)
            why = why_not_compared(value)
            if why is not None:
                raise NotRecordable(why)
            refuse_after_writes(m, function)
        except NotRecordable as error:
            m.recorder.undo_to(mark)
            m.late(breaks.OPAQUE_CALL, f"{name}: {error}", value)
        function.expect(m, value, mapped((args, kwargs), Live, plain_of))
        if function.expected is not None and getattr(m.region, "runs_both", False):
            m.region.refuse(f"a call of {name}")  # its results may differ in a later run
        return value
    raise BreakAfterOperation(breaks.TENSOR_ERROR, f"{type(trouble).__name__}: {trouble}", error=trouble)


def settle_returned_sizes(m: Any, function: OpaqueCall, value: Any) -> None:
    """A number that a call returns may follow from sizes. If results are not compared, all sizes become constants."""
    if m.symbolic_sizes is not None and has_numbers(value) and not function.is_compared():
        m.symbolic_sizes.symbols.settle_all(f"a number that {function.__name__} returns")


def has_numbers(value: Any) -> bool:
    """Whether a result holds what may follow from a size: anything but tensors and None."""
    if isinstance(value, (tuple, list)):
        return any(map(has_numbers, value))
    return not (value is None or isinstance(value, torch.Tensor))


def returns_known(m: Any, function: OpaqueCall, value: Any) -> bool:
    """Whether a result is a tensor that was there before, as that of dropout by a probability of 0. The schema of an
    operator says so for all numbers."""
    if isinstance(function.function, OPERATORS):
        return False
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return any([isinstance(part, torch.Tensor) and m.knows(part) for part in parts])


def refuse_after_writes(m: Any, function: Any) -> None:
    """Called after a call was recorded. If its results differ in a later run, the segment runs from its start again."""
    if compares_results(function) and writes_of_calls.written_inputs(m.recorder):
        raise NotRecordable("should its results differ one day, what was written before could not be undone")


def is_native(value: Any) -> bool:
    """A C function that exists for the life of the process (``torch.mul``, ``torch.Tensor.add``), or a module, which
    the function reads when it runs."""
    return (
        isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType, types.ModuleType))
        or isinstance(value, types.BuiltinFunctionType)
        and (value.__self__ is None or isinstance(value.__self__, (types.ModuleType, type)))
    )
