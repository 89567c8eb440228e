"""Repeats a call of a function transform without data, to find how the sizes in its operators depend on symbols.

    grad(lambda t: t.sum())(x)      x: f32[5, 4]        aten.expand(ones, [5, 4])
                                    x: f32[6, 4]        aten.expand(ones, [6, 4])      so: [s0, 4]

The operators of a transform are chosen by torch's C++ code, which is given plain sizes. So the log of a call says what
torch's Python was called with, where it called functions of the program, which torch calls those made, and what they
returned. From it the call is repeated for other sizes: torch's code runs, and the log takes the place of the program's
functions, which never run twice. The operators must be the same ones on the same values. Numbers that differ become
formulas of the symbols. The segment repeats the call for each size that it is given (`SizeBox`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from copy import copy
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from ...backends.shapes_at_other_sizes import call_without_data, switches_kept
from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import (
    len_torch_dispatch_stack,
    peek_interpreter_stack,
    pop_dynamic_layer_stack,
    pop_torch_dispatch_stack,
    push_dynamic_layer_stack,
    push_on_torch_dispatch_stack,
)
from ...runtime.argument_trees import mapped
from ...tensors.fit_size_formulas import NoFormula
from ..engine.torch_call_records import Handle, NotRecordable, TorchCall
from ..numbers.live_scalars import Expression, Live
from ..pytorch.higher_order.native_callbacks import landing_place
from .meta_shape_replay import NotRepeatable, part_of, substitute_handles
from .performed_operators import Listener, Number, NumberOf, Operators, compare_functions, compare_numbers, fit_numbers

PLAIN = (int, float, complex, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

MOST_TRIES = 256
"""How often a call is repeated at most to find sizes that the program asks for inside."""

ValueOf = Callable[[Handle], Any]


class EndOfLog(Exception):
    """The call has not gone further yet."""


class Callback:
    """A function of the program. The log says what it does."""


class Returned(NamedTuple):
    """A function that torch has returned, as `vjp` does."""

    key: int


class Rebuilt(NamedTuple):
    """A function of torch's, around others: without its cells, which hold values of the run."""

    code: CodeType
    names: dict[str, Any]
    defaults: tuple | None
    keyword_defaults: dict[str, Any] | None
    cells: tuple


class TransformEvent(NamedTuple):
    kind: str
    position: int
    """The number of calls that were recorded before."""
    values: tuple


class TransformLog:
    """What happened in the outermost call of a transform, as data."""

    def __init__(self, m: Any, start: int, is_of_torch: Callable[[FunctionType], bool]):
        self.m, self.start, self.sizes, self.is_of_torch = m, start, m.symbolic_sizes, is_of_torch
        self.calls: list[TorchCall] = m.recorder.calls
        """A copy as soon as the call has ended."""
        self.offset = 0
        """The index of the first of them."""
        self.events: list[TransformEvent] = []
        self.operators = Operators()
        self.indices: list[int | None] = []
        """For each operator, its index among those that the graph gets, before those without use are removed."""
        self.expected: list[Any] = []
        """The arguments of the operators, with formulas in place of numbers that differ between sizes."""
        self.claims: dict[tuple, tuple[Handle, Any]] = {}
        """Sizes of values inside that the program has seen, as formulas."""
        self.earlier: list[TransformLog] = self.sizes.transforms[:]
        """Those of the calls before, which may have made functions that this one calls."""
        self.last: dict[int, Repetition] = {}
        """The last repetition at each point, while `changes` is the number of changes of the points."""
        self.changes, self.tries = -1, 0
        self.grad_mode = torch.is_grad_enabled()
        self.why_not: str | None = None

    # ---- what is logged

    def begins(self, function: FunctionType, args: tuple, kwargs: dict) -> None:
        takes = function.__closure__ is None  # `vjp` itself; a transformed function is given no others
        self.note("call", self.function(function), self.template(args, takes), self.template(kwargs, takes))

    def calls_back(self, args: tuple, kwargs: dict) -> None:
        self.note("callback", self.template(args, False), self.template(kwargs, False))

    def goes_on(self, result: Any) -> None:
        """The program's function has returned."""
        self.note("result", self.template(result, False))

    def ends(self, value: Any) -> None:
        """Torch's code has returned to the program."""
        for part in value if type(value) in (tuple, list) else (value,):
            if type(part) is FunctionType:
                self.sizes.returned[id(part)] = part
        self.note("end", self.template(value))

    def note(self, kind: str, *values: Any) -> None:
        self.events.append(TransformEvent(kind, len(self.m.recorder.calls), values))

    def performed(self, function: Any, args: tuple, kwargs: dict, made: Any, index: int | None) -> None:
        before = len(self.operators.all)
        self.operators.note(function, args, kwargs, made)
        if len(self.operators.all) > before:
            self.indices.append(index)

    def meets_constant(self, value: torch.Tensor, current: tuple | None) -> None:
        """Torch has made a tensor by itself, which is a constant of the graph."""
        if value._is_zerotensor() or current is not None and has_live(current[1:]):
            self.why_not = "a constant tensor that may depend on a size"

    def function(self, function: Any) -> Any:
        if type(function) is FunctionType and self.is_of_torch(function):
            if self.sizes.returned.get(id(function)) is function:
                return Returned(id(function))
            if function.__closure__ is None:
                return function
            cells = tuple([self.template(cell.cell_contents) for cell in function.__closure__ or ()])
            return Rebuilt(
                function.__code__, function.__globals__, function.__defaults__, function.__kwdefaults__, cells
            )
        return Callback

    def template(self, value: Any, takes_functions: bool = True) -> Any:
        """A value of the run, with handles in place of its tensors."""
        kind = type(value)
        if isinstance(value, Live):
            return Number.of(value)
        if kind in PLAIN or kind is ModuleType:
            return value
        if isinstance(value, torch.Tensor):
            try:
                return self.m.recorder.tensor(value)
            except NotRecordable as error:
                self.why_not = str(error)
                return None
        if kind in (tuple, list):
            return kind([self.template(part, takes_functions) for part in value])
        if kind is dict:
            return {key: self.template(part, takes_functions) for key, part in value.items()}
        if takes_functions and callable(value) and not isinstance(value, type):
            return self.function(value)
        self.why_not = f"a {kind.__qualname__}"
        return None

    # ---- at the points of a trace

    def at(self, handle: Handle, number: int) -> Any:
        """A value inside, at a point."""
        if self.changes != self.sizes.symbols.changes:
            self.last.clear()
            self.changes = self.sizes.symbols.changes
        last = self.last.get(number)
        if last is None or not last.has(handle):
            self.tries += 1
            if self.tries > MOST_TRIES:
                self.why_not = "too many sizes are asked for"
            last = self.last[number] = self.repeated_at(number)
        return last.of(handle)

    def repeated_at(self, number: int) -> Repetition:
        symbols, replay = self.sizes.symbols, self.sizes.replay

        def number_of(expression: Expression) -> Any:
            values = symbols.values(expression)
            return None if values is None else values[number]

        return self.repeated(lambda handle: replay.at(handle, number), number_of, replay.tracer())

    def fit(self) -> bool:
        """At the end: whether the operators are the same for all sizes, with formulas for their numbers. If they are
        not, sizes are specialized."""
        symbols, why = self.sizes.symbols, self.why_not_fitted()
        if why is not None and symbols.is_any and self.why_not is None:
            symbols.make_way(lambda: self.why_not_fitted() is None, why)
            why = self.why_not_fitted()
        self.calls, self.offset = self.m.recorder.calls[self.start :], self.start
        self.last.clear()
        if why is not None or not symbols.is_any:
            symbols.settle_all(f"a function transform: {why}")
            return False
        self.sizes.transforms.append(self)
        return True

    def why_not_fitted(self) -> str | None:
        return self.sizes.symbols.at_all_points(self.why_not_fitted_once)

    def why_not_fitted_once(self) -> str | None:
        symbols, own = self.sizes.symbols, self.operators.all
        try:
            found = [self.repeated_at(number).operators.all for number in range(len(symbols.points()))]
            for others in found:
                compare_functions(own, others)
            self.expected = [
                fit_numbers(symbols, one.given, [others[at].given for others in found]) for at, one in enumerate(own)
            ]
        except NoFormula as error:
            return str(error)
        return None

    # ---- repetition

    def checked_by(
        self, number: Callable[[Expression], Callable], follows: Callable[[Expression], bool]
    ) -> Callable[[ValueOf, Any, Any], None]:
        """`check` as a function of a point. `number` makes one of a number that `follows` from the sizes. It outlives
        the trace, and holds no tensors of it."""
        log = self.without_run()

        def check(value_of: ValueOf, point: Any, probe: Any) -> None:
            log.check(value_of, lambda x: number(x)(point) if follows(x) else None, probe.tracer)

        return check

    def without_run(self) -> TransformLog:
        log = copy(self)
        log.m = log.sizes = None
        log.operators = Operators()
        log.operators.all = self.operators.all
        log.expected = mapped(self.expected, Live, Number.of)
        log.earlier = [earlier.without_run() for earlier in self.earlier]
        return log

    def check(self, value_of: ValueOf, number_of: NumberOf, tracer: Any) -> None:
        """Raises NotRepeatable if the operators are others at a point."""
        found = self.repeated(value_of, number_of, tracer)
        compare_functions(self.operators.all, found.operators.all)
        for expected, other in zip(self.expected, found.operators.all, strict=True):
            compare_numbers(number_of, expected, [other.given])
        for (_, _, dim), (handle, known) in self.claims.items():
            size = number_of(known) if isinstance(known, Expression) else known
            if found.of(handle).shape[dim] != size:
                raise NotRepeatable("a size follows another formula")

    def repeated(
        self, value_of: ValueOf, number_of: NumberOf, tracer: Any, functions: dict[int, Any] | None = None
    ) -> Repetition:
        """`value_of`: the values of handles from before the call, which are tensors of this tracer."""
        if self.why_not is not None:
            raise NotRepeatable(self.why_not)
        if functions is None:
            functions = {}
            for log in self.earlier:
                log.repeated(value_of, number_of, tracer, functions)
        made = Repetition(self, value_of, number_of, functions)
        with switches_kept(), at_no_level(), torch.set_grad_enabled(self.grad_mode):
            try:
                push_on_torch_dispatch_stack(tracer)
                push_on_torch_dispatch_stack(made.listener)
                made.play()
            except EndOfLog:
                pass
            except NoFormula:
                raise
            except Exception as error:
                reraise_from_outside(error)
                raise NotRepeatable(f"{type(error).__name__}: {error}") from error
        return made


class Repetition:
    def __init__(self, log: TransformLog, value_of: ValueOf, number_of: NumberOf, functions: dict[int, Any]):
        self.log, self.value_of, self.number_of, self.functions = log, value_of, number_of, functions
        self.values: dict[tuple, Any] = {}
        """By call and path."""
        self.listener = Listener()
        self.event, self.call = 0, log.start

    @property
    def operators(self) -> Operators:
        return self.listener.operators

    def has(self, handle: Handle) -> bool:
        return (handle.call, handle.path) in self.values or (handle.call, ()) in self.values

    def play(self) -> Any:
        """Go on to the end of the program's function, and return what it returns."""
        events = self.log.events
        while True:
            self.perform_to(events[self.event].position if self.event < len(events) else self.end_of_calls())
            event = self.next()
            if event.kind == "result":
                return self.made(event.values[0])
            if event.kind != "call":
                raise NotRepeatable("torch's code does not call a function that it has called")
            function, args, kwargs = map(self.made, event.values)
            value = function(*args, **kwargs)
            event = self.next("end")
            self.bind(event.values[0], value)

    def called_back(self, *args: Any, **kwargs: Any) -> Any:
        event = self.next("callback")
        self.call = event.position
        self.bind(event.values[0], args)
        self.bind(event.values[1], kwargs)
        return self.play()

    def next(self, kind: str | None = None) -> TransformEvent:
        if self.event == len(self.log.events):
            raise EndOfLog
        event = self.log.events[self.event]
        if kind is not None and event.kind != kind:
            raise NotRepeatable(f"torch's code goes another way: {event.kind}, not {kind}")
        self.event += 1
        return event

    def end_of_calls(self) -> int:
        return self.log.offset + len(self.log.calls)

    def perform_to(self, end: int) -> None:
        for at in range(self.call, end):
            call = self.log.calls[at - self.log.offset]
            if call.target is not landing_place:
                args, kwargs = substitute_handles(call.args, self.of), substitute_handles(call.kwargs, self.of)
                self.values[at, ()] = call_without_data(call.target, args, kwargs)
        self.call = max(self.call, end)

    def of(self, handle: Handle) -> Any:
        if handle.call is None or handle.call < self.log.start:
            with at_no_level():
                return self.value_of(handle)
        if (handle.call, handle.path) in self.values:
            return self.values[handle.call, handle.path]
        if (handle.call, ()) not in self.values:
            raise NotRepeatable("a value of native code")
        return part_of(self.values[handle.call, ()], handle.path)

    def made(self, template: Any) -> Any:
        """The value that stands at this point for one of the run."""
        if template is Callback:
            return lambda *args, **kwargs: self.called_back(*args, **kwargs)
        kind = type(template)
        if kind is Number:
            return template.at(self.number_of)
        if kind is Handle:
            return self.of(template)
        if kind is Returned:
            if template.key not in self.functions:
                raise NotRepeatable("a function of an earlier call")
            return self.functions[template.key]
        if kind is Rebuilt:
            cells = tuple([CellType(self.made(cell)) for cell in template.cells])
            made = FunctionType(template.code, template.names, None, template.defaults, cells)
            made.__kwdefaults__ = template.keyword_defaults
            return made
        if kind in (tuple, list):
            return kind([self.made(part) for part in template])
        return {key: self.made(part) for key, part in template.items()} if kind is dict else template

    def bind(self, template: Any, value: Any) -> None:
        kind = type(template)
        if kind is Handle:
            if template.call is not None and template.call >= self.log.start:
                self.values[template.call, template.path] = value
        elif kind is Returned:
            self.functions[template.key] = value
        elif kind in (tuple, list, dict):
            if type(value) is not kind or len(value) != len(template):
                raise NotRepeatable("another number of values")
            for key in template if kind is dict else range(len(template)):
                self.bind(template[key], value[key])


def has_live(given: Any) -> bool:
    found: list[Live] = []
    mapped(given, Live, found.append)
    return bool(found)


@contextlib.contextmanager
def at_no_level() -> Iterator[None]:
    """Outside of all transforms and dispatch modes. An error may leave some of those entered inside."""
    levels: list[Any] = []
    modes: list[Any] = []
    try:
        leave_all(levels, modes)
        yield
    finally:
        leave_all([], [])
        while modes:
            push_on_torch_dispatch_stack(modes.pop())
        while levels:
            push_dynamic_layer_stack(levels.pop())


def leave_all(levels: list[Any], modes: list[Any]) -> None:
    while peek_interpreter_stack() is not None:
        levels.append(pop_dynamic_layer_stack())
    while len_torch_dispatch_stack():
        modes.append(pop_torch_dispatch_stack(None))
