"""Shape replay: repeats the calls of a trace on meta tensors of other sizes, to find how shapes depend on symbols.

Most calls of a model involve no symbolic size, or their results have none: those are computed once for all points. A
call that changes a tensor's shape in place (``y.unsqueeze_(0)``) is repeated as the one that returns a view, because
points share tensors and calls are repeated in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ...backends.shapes_at_other_sizes import Shapes
from ...concurrency.outside_errors import reraise_from_outside
from ...ir.untraceable_graph import Untraceable
from ...runtime.eager.cond import Branches
from ...tensors.fit_size_formulas import NoFormula
from ..pytorch.torch_call_roles import STATE_IN_GRAPH
from .size_symbols import SizeSymbols


class NotRepeatable(NoFormula):
    """A call cannot be repeated at other sizes: the program does not support them, or the call needs data."""


class ShapeReplay:
    """The replay of one trace. `given`: its inputs with symbolic dimensions, from `SymbolicSizes`."""

    def __init__(self, symbols: SizeSymbols, recorder: Any, given: Mapping[int, Any]):
        self.symbols, self.recorder, self.given = symbols, recorder, given
        self.known: dict[tuple, Any] = {}
        """The values of inputs and calls at the points."""
        self.independent: set[Any] = set()
        """Those that depend on no symbol."""
        self.same_everywhere: set[Any] = set()
        """Those and others that are the same at all points: only the value at the first point is stored. Beyond the
        points the others may be different, as ``x[:n]`` is for an ``n`` that is less than the length of x."""
        self.parts: dict[int, list[Any]] = {}
        """The arguments of each call, as handles."""
        self.probe: Shapes | None = None
        self.changes = 0
        """The symbols' change count when they were computed."""
        self.inside: Any = None
        """The log of a function transform that is being called, which has its own values."""

    def shapes(self, handle: Any) -> list[tuple[int, ...]]:
        """A tensor's shapes at the points, or its only one if it depends on no symbol."""
        first = self.shape_at(handle, 0)
        if self.key(handle) in self.independent:
            return [first]
        return [first, *(self.shape_at(handle, k) for k in range(1, len(self.symbols.points())))]

    def sizes(self) -> Iterator[tuple[int, ...]]:
        """All sizes at the points that have been computed and differ there."""
        points = range(len(self.symbols.points()))
        for key in dict.fromkeys(key for key, _ in self.known):
            values = [self.known.get((key, number)) for number in points]
            shapes = [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]
            if len(shapes) == len(points) and len({len(shape) for shape in shapes}) == 1:
                yield from zip(*shapes, strict=True)

    def shape_at(self, handle: Any, number: int) -> tuple[int, ...]:
        value = self.at(handle, number)
        if not isinstance(value, torch.Tensor):
            raise NotRepeatable("no tensor")
        return tuple(value.shape)

    def at(self, handle: Any, number: int) -> Any:
        """The value at a point, computed by the calls that lead to it."""
        if self.is_inside(handle):
            return self.inside.at(handle, number)
        probe = self.current_probe()
        stack = [handle]
        while stack:
            at = stack[-1]
            key = self.key(at)
            if self.place(key, number) in self.known:
                stack.pop()
                continue
            if at.call is None:
                if not self.is_symbolic_input(at):
                    self.independent.add(key)
                    self.same_everywhere.add(key)
                self.known[self.place(key, number)] = self.input_at(probe, at, number)
                continue
            given = self.given_to(at.call)
            missing = [part for part in given if self.place(self.key(part), number) not in self.known]
            if missing:
                stack += missing
                continue
            if not self.depends_on_point(at.call):
                for same in (self.independent, self.same_everywhere):
                    if all(self.key(part) in same for part in given):
                        same.add(key)
            self.known[self.place(key, number)] = self.result(at.call, number)
            if (
                number == len(self.symbols.points()) - 1
                and key not in self.same_everywhere
                and all(
                    (key, k) in self.known and is_alike(self.known[key, k], self.known[key, number])
                    for k in range(number)
                )
            ):
                self.same_everywhere.add(key)
        return self.part(handle, number)

    def current_probe(self) -> Shapes:
        if self.probe is None or self.changes != self.symbols.changes:
            self.probe, self.changes = Shapes(), self.symbols.changes
            self.known.clear()
            self.independent.clear()
            self.same_everywhere.clear()
        return self.probe

    def tracer(self) -> Any:
        """What performs the calls at the points."""
        return self.current_probe().tracer

    def is_inside(self, handle: Any) -> bool:
        """Whether it is a value of a call of a function transform that has not ended yet."""
        return self.inside is not None and handle.call is not None and handle.call >= self.inside.start

    def forget_calls(self, start: int) -> None:
        """The calls from this one on have been removed, and others may take their places."""
        self.probe = None
        self.parts = {call: parts for call, parts in self.parts.items() if call < start}

    def depends_on_point(self, call: int) -> bool:
        """Whether the result of a call differs between points for another reason than its arguments."""
        return False

    def result(self, call: int, number: int) -> Any:
        made = self.recorder.calls[call]
        return self.perform(made.target, self.filled(made.args, number), self.filled(made.kwargs, number))

    def perform(self, target: Any, args: tuple, kwargs: dict) -> Any:
        assert self.probe is not None
        return repeated(self.probe, target, args, kwargs)

    def key(self, handle: Any) -> Any:
        return ("input", handle.key) if handle.call is None else handle.call

    def place(self, key: Any, number: int) -> tuple:
        """The key of the value at a point."""
        return key, 0 if key in self.same_everywhere else number

    def given_to(self, call: int) -> list[Any]:
        found = self.parts.get(call)
        if found is None:
            made = self.recorder.calls[call]
            found = self.parts[call] = _handles((made.args, made.kwargs))
        return found

    def is_symbolic_input(self, handle: Any) -> bool:
        example = self.recorder.examples[handle.key]
        if isinstance(example, torch.Tensor):
            return id(example) in self.given
        return self.symbols.values(handle.source) is not None

    def part(self, handle: Any, number: int) -> Any:
        return part_of(self.known[self.place(self.key(handle), number)], handle.path)

    def input_at(self, probe: Shapes, handle: Any, number: int) -> Any:
        example = self.recorder.examples[handle.key]
        if isinstance(example, torch.Tensor):
            given = self.given.get(id(example))
            try:
                if given is None:
                    return probe.input(example)
                shape = [
                    size if type(size) is int else self.symbols.values(size.expression)[number]  # type: ignore[index]
                    for size in given[1]
                ]
                return probe.input(example, shape, given[2])
            except Untraceable as error:  # a sparse or quantized tensor
                raise NotRepeatable(str(error)) from error
        values = self.symbols.values(handle.source)
        return example if values is None else values[number]

    def filled(self, tree: Any, number: int) -> Any:
        return substitute_handles(tree, lambda handle: self.part(handle, number))


def repeated(probe: Shapes, target: Any, args: tuple, kwargs: dict) -> Any:
    """A call without data. Its errors, of any kind, say that the program does not support these sizes."""
    if target in STATE_IN_GRAPH:
        target = target[:-1]
    if target is torch.ops.higher_order.cond:  # of an export; its branches take tensors only
        predicate, on_true, on_false, operands = args
        target, args = Branches(on_true, on_false), (predicate, *operands)
    try:
        if hasattr(target, "without_data"):  # a node with graphs of its own
            return target.without_data(probe.call, *args, **kwargs)
        return probe.call(target, args, kwargs)
    except Exception as error:
        reraise_from_outside(error)
        raise NotRepeatable(str(error)) from error


def succeeds(function: Callable, *args: Any) -> bool:
    try:
        function(*args)
    except NoFormula:
        return False
    return True


def part_of(value: Any, path: tuple) -> Any:
    for step in path:
        try:
            value = value[step]
        except (IndexError, KeyError, TypeError) as error:
            raise NotRepeatable("a result of fewer parts") from error
    return value


def substitute_handles(tree: Any, value_of: Callable[[Any], Any]) -> Any:
    """The arguments with a value in place of each handle."""
    if hasattr(tree, "call") and hasattr(tree, "path"):
        return value_of(tree)
    if type(tree) in (tuple, list):
        return type(tree)(substitute_handles(part, value_of) for part in tree)
    if type(tree) is dict:
        return {key: substitute_handles(part, value_of) for key, part in tree.items()}
    if type(tree) is slice:
        return slice(*(substitute_handles(part, value_of) for part in (tree.start, tree.stop, tree.step)))
    return tree


def is_alike(a: Any, b: Any) -> bool:
    """Whether two values are equal, except that they are different tensors."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        known, other = getattr(a, "value", None), getattr(b, "value", None)  # set on tensors without data
        return (
            a is b
            or known is not None
            and other is not None
            and known.type == other.type
            and (a.storage_offset(), a.is_conj(), a.is_neg()) == (b.storage_offset(), b.is_conj(), b.is_neg())
        )
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_alike, a, b))
    return type(a) is type(b) and type(a) in (int, bool, type(None)) and a == b


def _handles(tree: Any) -> list[Any]:
    if hasattr(tree, "call") and hasattr(tree, "path"):
        return [tree]
    if type(tree) in (tuple, list):
        return [handle for part in tree for handle in _handles(part)]
    if type(tree) is dict:
        return [handle for part in tree.values() for handle in _handles(part)]
    if type(tree) is slice:
        return _handles((tree.start, tree.stop, tree.step))
    return []
