"""Declared sizes: an export says beforehand which dimensions of which inputs are symbolic, and how they are related.

    x: b, 2*b + 1        one symbol, b. Both sizes are formulas of it

A trace finds out which sizes are equal by their values (``SizeSymbols.opened``). Here the caller has said it, so sizes
that are equal by chance stay apart. What the program needs besides is collected: for which symbols it needs one value,
which two it takes for one, and its conditions on the others, each with the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...tensors.eager_strides import packed_order
from ...tensors.fit_size_formulas import Space
from ..guards.guards import Guard
from ..guards.object_sources import Source
from ..guards.tensor_metadata import open_facts
from ..numbers import live_scalars
from .dynamic_dimensions import SymbolicSizeRequest, SymbolicSizes
from .size_symbols import LEAST, MOST_SIZE, LeafSize, SizeSymbols
from .verified_size_ranges import SizeBox

LAYOUT_FACTS = frozenset(("stride", "is_contiguous", "_debug_has_internal_overlap"))

KIND = "size"
"""The kind of the sources that stand for declared symbols."""


@dataclass(frozen=True, slots=True)
class DeclaredSymbol:
    """A size that the caller has given a name: its value in the example, and the range of values."""

    name: str
    hint: int
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class DeclaredSize:
    """A dimension: ``factor`` times a symbol, plus ``added``."""

    symbol: int
    factor: int = 1
    added: int = 0


class DeclaredSymbols(SizeSymbols):
    """`reasons`: for each symbol that has one value, the user's line and why."""

    def __init__(self, tracer: Any, declared: Sequence[DeclaredSymbol]):
        super().__init__(tracer)
        self.declared = declared
        self.reasons: dict[int, tuple[str | None, str]] = {}
        self.pairs: dict[int, tuple[int, str | None]] = {}
        """For each united symbol: the one that stands for it, and the user's line."""
        for number, symbol in enumerate(declared):
            source = Source(None, KIND, symbol.name)
            source.label = symbol.name
            leaf = live_scalars.Expression(None, (source,))
            self.leaves.append(leaf)
            self.hints.append(symbol.hint)
            self.places.append([])
            self.moves.append(None)
            self.of_leaf[id(leaf)] = LeafSize(number)
            if symbol.most is not None:
                self.most[number] = symbol.most

    def size_of(self, size: DeclaredSize) -> Any:
        """The size of a dimension, as a live scalar."""
        expression, value = self.leaves[size.symbol], self.hints[size.symbol]
        made = live_scalars.make(value, expression, self.tracer)
        made = made * size.factor if size.factor != 1 else made
        return made + size.added if size.added else made

    # ---- points

    def space_of(self, symbols: Iterable[int]) -> Space:
        """Points in the declared range: beyond it the program may be impossible."""
        most = {k: MOST_SIZE if k in self.settled else self.most.get(k, MOST_SIZE) for k in symbols}
        ranges = {f"s{k}": (self.declared[k].hint, max(self.declared[k].least, LEAST), most[k]) for k in symbols}
        return Space.within(ranges, {f"s{k}": unit for k, unit in self.units.items()})

    # ---- what the program needs

    def note_settled(self, expression: live_scalars.Expression) -> None:
        before = set(self.settled)
        super().note_settled(expression)
        self.note(before, "its value decides what the program does")

    def settle_one(self, is_possible: Callable[[], bool], why: str) -> bool:
        before = set(self.settled)
        found = super().settle_one(is_possible, why) or self.settle_fewest(is_possible)
        self.note(before, why)
        return found

    def settle_fewest(self, is_possible: Callable[[], bool]) -> bool:
        """Specialize only the symbols that stand in the way. Example: the sizes of an image, but not of the batch."""
        left = [k for k in range(len(self.hints)) if k not in self.settled]
        before = set(self.settled)
        self.settled.update(left)
        for number in left:
            self.settled.discard(number)
            self.forget()
            if not is_possible():
                self.settled.add(number)
        some = [k for k in left if k in self.settled]
        self.settled.difference_update(left)
        self.forget()
        if len(some) == len(left):
            return False
        for number in some:
            self.tracer.guard_value(self.leaves[number], self.hints[number])
        return self.settled > before

    def settle_all(self, why: str) -> None:
        before = set(self.settled)
        super().settle_all(why)
        self.note(before, why)

    def unite_two(self, is_possible: Callable[[], bool]) -> bool:
        before, leaves = set(self.united), dict(self.of_leaf)
        found = super().unite_two(is_possible)
        for other in self.united - before:
            at = id(self.leaves[other])
            self.pairs[other] = self.of_leaf[at].symbol, self.tracer.user_line()
            assert leaves[at].symbol == other
        return found

    def factor_between(self, one: int, other: int) -> int | None:
        """A symbol that is a multiple of another is declared as such."""
        factor = super().factor_between(one, other)
        return factor if factor == 1 else None

    def note(self, before: set[int], why: str) -> None:
        for number in self.settled - before - self.united:
            self.reasons[number] = self.tracer.user_line() or self.reasons.get(number, (None,))[0], why


class DeclaredSizes(SymbolicSizes):
    """`shapes`: by the id of each tensor, its dimensions that are not constants."""

    symbols: DeclaredSymbols

    def __init__(
        self, tracer: Any, declared: Sequence[DeclaredSymbol], shapes: Mapping[int, Mapping[int, DeclaredSize]]
    ):
        super().__init__(tracer, SymbolicSizeRequest({}))
        self.symbols = DeclaredSymbols(tracer, declared)
        self.replay.symbols = self.symbols
        self.shapes = shapes
        self.box: SizeBox | None = None
        """None if every size turned out to be a constant."""
        self.most_elements = 1
        """Of an input with symbolic sizes, in the example."""
        self.lines: dict[int, str | None] = {}
        """The user's line of each condition, by the expression's id."""
        guard_outcome = tracer.guard_outcome

        def noted(expression: live_scalars.Expression, value: bool) -> None:
            self.lines.setdefault(id(expression), tracer.user_line())
            guard_outcome(expression, value)

        tracer.guard_outcome = noted

    def admit(self, tensor: torch.Tensor, source: Source) -> Guard | None:
        declared = self.shapes.get(id(tensor))
        order = packed_order(tuple(tensor.shape), tensor.stride())
        if not declared or order is None:
            return None
        shape: list[Any] = list(tensor.shape)
        for dim, size in declared.items():
            shape[dim] = self.symbols.size_of(size)
        self.given[id(tensor)] = tensor, tuple(shape), order
        self.come_near_enough()
        dims = tuple(declared)
        return Guard("open tensor", source, (open_facts(tensor, dims, order), dims, order))

    def finish(self) -> None:
        """As the trace ends: specialize what calls need, and keep what tells for which sizes the calls are the same."""
        self.check_calls()
        inputs = self.inputs()
        self.box = None if inputs is None else self.box_of(inputs)
        if self.box is not None:
            self.box.compares_layouts = self.reads_layout
        self.most_elements = self.largest()

    @property
    def reads_layout(self) -> bool:
        """Whether the program has asked how tensors lie in memory."""
        return not LAYOUT_FACTS.isdisjoint(self.tracer.recorder.facts_read)

    def conditions(self) -> Iterator[tuple[live_scalars.Expression, bool, str | None]]:
        """What the program has found out about symbols, besides their values, with the user's lines."""
        for kind, _, expected in self.tracer.heap.guards:
            if kind == "outcome" and self.is_of_symbols(expected[0]):
                yield *expected, self.lines.get(id(expected[0]))

    def is_of_symbols(self, expression: live_scalars.Expression) -> bool:
        sources = expression.sources()
        return bool(sources) and all(isinstance(source, Source) and source.kind == KIND for source in sources)

    def left(self) -> list[int]:
        """The symbols that are still symbolic."""
        return [k for k in range(len(self.symbols.hints)) if k not in self.symbols.settled]
