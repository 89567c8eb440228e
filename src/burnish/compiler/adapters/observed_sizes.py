"""Compiles a part of a graph once for all sizes: those of its inputs are symbols, as far as calls show that they vary.

    h[8, 16], mask[8, 1], n = 8         the first call: compiled for these sizes
    h[9, 16], mask[9, 1], n = 9         the second: s is a symbol, h[s, 16], mask[s, 1], n = s
    h[50, 16], mask[50, 1], n = 50      runs the program for all s
    h[50, 16], mask[7, 1], n = 50       other relations: one more symbol, and one more program

A graph that is cut at calls that run as they are has such parts. Capture guards the sizes of the whole graph; how those
of a part follow from them is only known from the calls. So each relation is a condition of the program, looked up for
each combination of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ...captured_graph.compile_request import request_of
from ...captured_graph.symbolic_example_inputs import Like, SymbolicExampleInputs
from ...concurrency import thread_locks
from ...tensors.eager_strides import packed_order
from ...tensors.fit_size_formulas import LEAST, Formula, NoFormula, Point, Space
from .. import CompiledFn
from .specialize_numbers import own_copy

MOST_PROGRAMS = 3
MOST_KNOWN = 10_000
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)

Layouts = tuple[tuple[tuple[int, ...], tuple[int, ...]] | int | None, ...]
"""For each input its shape and strides, or the number that is a size; None of others."""


class CompileForObservedSizes:
    """``apiece`` compiles for each size by itself. ``compile_symbolic`` gets a graph, examples, and their sizes."""

    def __init__(
        self,
        gm: GraphModule,
        apiece: CompiledFn,
        compile_symbolic: Callable[[GraphModule, list[Any], SymbolicExampleInputs], CompiledFn],
    ):
        self.gm, self.apiece, self.compile_symbolic = gm, apiece, compile_symbolic
        self.numbers = frozenset(request_of(gm).size_numbers)
        self.observed: list[Layouts] = []
        self.programs: list[tuple[Relations, CompiledFn]] = []
        self.known: dict[Layouts, CompiledFn] = {}
        self.lock = thread_locks.lock()

    def __call__(self, *inputs: Any) -> Any:
        layouts = self.layouts_of(inputs)
        found = self.known.get(layouts)
        if found is None:
            with self.lock:
                found = self.known.get(layouts) or self.found(layouts, inputs)
                if len(self.known) > MOST_KNOWN:
                    self.known.clear()
                self.known[layouts] = found
        return found(*inputs)

    def layouts_of(self, inputs: Sequence[Any]) -> Layouts:
        return tuple(
            [
                (x.shape, x.stride())
                if isinstance(x, torch.Tensor) and x.layout is torch.strided and not x.is_nested
                else x
                if k in self.numbers and type(x) is int
                else None
                for k, x in enumerate(inputs)
            ]
        )

    def found(self, layouts: Layouts, inputs: Sequence[Any]) -> CompiledFn:
        for relations, program in self.programs:
            if relations.hold(layouts):
                return program
        if not can_vary(inputs):
            return self.apiece
        self.observed.append(layouts)
        if len(self.observed) < 2 or len(self.programs) >= MOST_PROGRAMS:
            return self.apiece
        try:
            relations = Relations(self.observed)
        except NoFormula:
            self.observed = [layouts]
            return self.apiece
        program = self.compile_symbolic(own_copy(self.gm), list(inputs), relations.inputs(inputs))
        self.programs.insert(0, (relations, program))
        return program


def can_vary(inputs: Sequence[Any]) -> bool:
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    return all(
        type(x) in PLAIN
        and x.layout is torch.strided
        and not (x.is_nested or x.is_conj() or x.is_neg() or x._is_zerotensor())
        for x in tensors
    )


class Relations:
    """How the sizes of calls depend on each other: those that vary are a symbol times a factor, plus a number."""

    def __init__(self, observed: Sequence[Layouts]):
        self.layout = observed[-1]
        self.kinds = list(map(kind_of, self.layout))
        if any(list(map(kind_of, layouts)) != self.kinds for layouts in observed):
            raise NoFormula("other numbers of dimensions")
        sizes = list(zip(*map(numbers_of, observed), strict=True))
        symbols: list[tuple[int, ...]] = []
        for values in sorted({each for each in sizes if len({*each}) > 1}, key=spread):
            if relation_to(symbols, values) is None:
                symbols.append(values)
        if not symbols or any(min(values) < LEAST for values in symbols):
            raise NoFormula("sizes of 0 and 1 have other meanings")
        self.sizes = [values[-1] if len({*values}) == 1 else relation_to(symbols, values) for values in sizes]
        """Of each size: the symbol, the factor, and what is added; or its only value."""
        self.hints = tuple([values[-1] for values in symbols])
        self.places = [sizes.index(values) for values in symbols]
        self.orders = [
            packed_order(tuple(each[0]), each[1]) if type(each) is tuple and varies(own) else None
            for each, own in self.with_sizes()
        ]
        """Of the tensors that vary: the order of their dimensions in memory."""
        if not self.hold(self.layout):
            raise NoFormula("an input that varies has gaps in memory")

    def with_sizes(self) -> Iterator[tuple[Any, list[Any]]]:
        """The layout of each input, and its sizes."""
        at = 0
        for each in self.layout:
            count = len(each[0]) if type(each) is tuple else int(type(each) is int)
            yield each, self.sizes[at : at + count]
            at += count

    def hold(self, layouts: Layouts) -> bool:
        """Whether a program for them serves a call with these sizes."""
        if list(map(kind_of, layouts)) != self.kinds:
            return False
        numbers = numbers_of(layouts)
        point = tuple([numbers[place] for place in self.places])
        if min(point) < LEAST or numbers != [size_at(size, point) for size in self.sizes]:
            return False
        for (known, own), each, order in zip(self.with_sizes(), layouts, self.orders, strict=True):
            if type(each) is not tuple:
                continue
            if varies(own):
                if order is None or packed_order(tuple(each[0]), each[1]) != order:
                    return False
            elif each[1] != known[1]:
                return False
        return True

    def inputs(self, inputs: Sequence[Any]) -> SymbolicExampleInputs:
        names = [f"s{k}" for k in range(len(self.hints))]
        space = Space.around(dict(zip(names, self.hints, strict=True)))
        shapes: dict[int, list[int | Formula]] = {}
        orders: dict[int, tuple[int, ...]] = {}
        numbers: dict[int, Callable[[Point], Any]] = {}
        followed: dict[int, Formula] = {}
        for k, (each, sizes) in enumerate(self.with_sizes()):
            if not varies(sizes):
                continue
            formulas = [formula_of(size, space) for size in sizes]
            if type(each) is tuple:
                shapes[k], orders[k] = formulas, self.orders[k]  # type: ignore[assignment]
            else:
                followed[k] = formulas[0]  # type: ignore[assignment]
                numbers[k] = followed[k].at
        given = [Like.of(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        return SymbolicExampleInputs(space, given, shapes, orders, numbers, followed)


def varies(sizes: Sequence[Any]) -> bool:
    return any(type(size) is tuple for size in sizes)


def kind_of(layout: Any) -> Any:
    """The number of dimensions of a tensor; otherwise the type."""
    return len(layout[0]) if type(layout) is tuple else type(layout)


def numbers_of(layouts: Layouts) -> list[int]:
    """All sizes in a row."""
    found: list[int] = []
    for each in layouts:
        if type(each) is tuple:
            found += each[0]
        elif type(each) is int:
            found.append(each)
    return found


def spread(values: Sequence[int]) -> int:
    return max(values) - min(values)


def relation_to(symbols: Sequence[tuple[int, ...]], values: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The symbol that the values are a multiple of, plus a number."""
    for number, known in enumerate(symbols):
        low, high = known.index(min(known)), known.index(max(known))
        factor, rest = divmod(values[high] - values[low], known[high] - known[low])
        added = values[low] - factor * known[low]
        if not rest and factor > 0 and all(factor * x + added == y for x, y in zip(known, values, strict=True)):
            return number, factor, added
    return None


def size_at(size: tuple[int, int, int] | int, point: Point) -> int:
    return size if type(size) is int else size[1] * point[size[0]] + size[2]  # type: ignore[index]


def formula_of(size: tuple[int, int, int] | int, space: Space) -> int | Formula:
    if type(size) is int:
        return size
    number, factor, added = size  # type: ignore[misc]
    none = (0,) * len(space.names)
    powers = tuple([int(k == number) for k in range(len(space.names))])
    return Formula(space.names, ((factor, powers), *([(added, none)] if added else [])))
