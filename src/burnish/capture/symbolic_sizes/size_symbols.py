"""Symbolic shapes in a trace: the symbols of dynamic dimensions, and numbers computed from them.

A symbol is identified by the expression that reads its size. A number is evaluated at a few *points*: sizes near the
observed ones, and one set far away. The values determine its formula in the symbols (`Space`), and equal numbers. A
symbol whose value decides what the program does is specialized: guarded by value.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from ... import events
from ...tensors.fit_size_formulas import LEAST, Formula, NoFormula, Point, Space
from ..numbers import live_scalars
from .linear_sizes import LeafSize, multiple_of_symbol

UNITS = (2, 4, 8, 16, 32, 64)
MOST_UNIT = UNITS[-1]

FAR = (16, 4, 2)
"""How far beyond the observed size formulas are tried, as factors. The first that works for the program is used: it may
have a limit, such as the length of a position table."""

MOST_SIZE = 1 << 40

MOST_TELLING = 12
"""How many points are added in one trace to tell quotients apart."""


class PointsAdded(Exception):
    """What has been computed at the points is to be computed again, at more of them."""


NUMBER = -1
"""In place of a dimension: the symbol is a number by itself."""


class SymbolPlace(NamedTuple):
    """A dimension of an input."""

    path: tuple
    dim: int


def is_counter(places: Sequence[SymbolPlace], move: tuple[int, int] | None) -> bool:
    """Whether a symbol is a number that was seen to change. It is probably not the size that it happens to be now."""
    return move is not None and all(place.dim == NUMBER for place in places)


class SizeSymbols:
    """The symbols of one trace."""

    def __init__(self, tracer: Any):
        self.tracer = tracer
        self.leaves: list[live_scalars.Expression] = []
        self.hints: list[int] = []
        self.places: list[list[SymbolPlace]] = []
        self.moves: list[tuple[int, int] | None] = []
        self.most: dict[int, int] = {}
        """The limit of symbols that the program compares with the end of something, such as a position table."""
        self.settled: set[int] = set()
        """Symbols that are guarded by value, or united with another."""
        self.unfitted: set[int] = set()
        """Those because a size of a result has no formula."""
        self.united: set[int] = set()
        """Symbols that are equal to another, or a multiple of it, which stands for them."""
        self.offered: dict[int, tuple[live_scalars.Expression, int, SymbolPlace]] = {}
        """Numbers that changed between calls, by the expression's id: with the value, and where it was read."""
        self.numbers: set[int] = set()
        """Symbols that are numbers of the program, such as a position in a cache, and no dimension of an input."""
        self.of_leaf: dict[int, LeafSize] = {}
        """By the expression's id."""
        self.canonical: dict[tuple[int, ...], live_scalars.Expression] = {}
        """By the values at the points."""
        self.equal: list[tuple[Any, Any]] = []
        """Formulas that have the same values at the points, and were taken for one number."""
        self.compared: set[tuple[int, ...]] = set()
        """The values of sizes whose formula is fitted, or in `equal` with the fitted one."""
        self.units: dict[int, int] = {}
        """What symbols are multiples of, if not 1: other sizes are compiled for by themselves."""
        self.is_divided = False
        """Whether quotients of symbols have been found."""
        self.around: tuple[Space, list[Point]] | None = None
        self.telling: list[Point] | None = []
        """Points that tell quotients apart; None if the program does not support such sizes."""
        self.changes = 0
        """How often the points have changed."""
        self.far = 0
        """Index into FAR. After the last one, formulas are only known to hold near the observed sizes."""

    def opened(self, leaf: live_scalars.Expression, place: SymbolPlace, size: int, move: tuple[int, int] | None) -> Any:
        """The size as a live scalar: a new symbol, or a known one plus a constant. `move`: its old and new size."""
        for number, hint in enumerate(self.hints):
            if number in self.united:
                continue
            other = self.moves[number]
            is_counted = is_counter([place], move) or is_counter(self.places[number], other)
            if size == hint and (move == other or None in (move, other) and not is_counted):
                added = 0
            elif move is not None and other is not None and move[1] - move[0] == other[1] - other[0] != 0:
                added = size - hint
            else:
                continue
            base = self.leaves[number]
            expected = base if not added else live_scalars.Expression(operator.add, (base, added))
            self.tracer.guard_outcome(live_scalars.Expression(operator.eq, (leaf, expected)), True)
            self.places[number].append(place)
            break
        else:
            number, added = len(self.hints), 0
            self.hints.append(size)
            self.leaves.append(leaf)
            self.places.append([place])
            self.moves.append(move)
            self.forget()
            if self.far == len(FAR):
                self.bound(number)
        self.of_leaf[id(leaf)] = LeafSize(number, added)
        self.tracer.guard_outcome(live_scalars.Expression(operator.ge, (leaf, LEAST)), True)
        return live_scalars.make(size, leaf, self.tracer)

    def open_constant(self, leaf: live_scalars.Expression, value: int) -> None:
        """A number that is guarded by value, while the sizes that it is added to stay symbolic."""
        number = len(self.hints)
        self.hints.append(value)
        self.leaves.append(leaf)
        self.places.append([])
        self.moves.append(None)
        self.of_leaf[id(leaf)] = LeafSize(number)
        self.settled.add(number)
        self.forget()
        self.tracer.guard_value(leaf, value)

    # ---- points

    def space(self) -> Space:
        return self.surroundings()[0]

    def points(self) -> list[Point]:
        """The points of the space, one far away, and those that tell quotients apart."""
        return self.surroundings()[1]

    def at_all_points(self, function: Callable[..., Any], *args: Any) -> Any:
        """The result of a function that computes sizes at the points, and may find that it needs more of them."""
        while True:
            with contextlib.suppress(PointsAdded):
                return function(*args)

    def surroundings(self) -> tuple[Space, list[Point]]:
        if self.around is None:
            try:
                space = self.space_of(range(len(self.hints)))
            except NoFormula:  # limits leave too few sizes to tell the symbols apart
                limited = [k for k in self.most if k not in self.settled]
                if not limited:
                    raise
                self.note_settled(self.leaves[min(limited, key=lambda k: self.most[k] - self.hints[k])])
                return self.surroundings()
            space.points = [self.held(point) for point in space.points]
            points = list(space.points)
            if self.far < len(FAR):
                points.append(
                    self.held(
                        tuple(
                            min(FAR[self.far] * hint + (5 + k) * self.units.get(k, 1), self.most.get(k, MOST_SIZE))
                            for k, hint in enumerate(self.hints)
                        )
                    )
                )
            for sizes in self.telling or ():
                point = (*sizes, *self.hints[len(sizes) :])
                if all(size <= self.most.get(k, MOST_SIZE) for k, size in enumerate(point)):
                    points.append(self.held(point))
            self.around = space, points
        return self.around

    def space_of(self, symbols: Iterable[int]) -> Space:
        """Of these symbols."""
        return Space.around(
            {f"s{k}": self.hints[k] for k in symbols},
            {f"s{k}": most for k, most in self.most.items() if k not in self.settled},
            {f"s{k}": unit for k, unit in self.units.items()},
        )

    def held(self, point: Point) -> Point:
        """The point with the observed value for every size that is guarded by value."""
        return tuple([self.hints[k] if k in self.settled else size for k, size in enumerate(point)])

    def come_nearer(self) -> None:
        """The program does not support sizes this far away."""
        self.far += 1
        self.forget()
        if self.far == len(FAR):
            self.bound_all()

    def bound_all(self) -> None:
        for number in range(len(self.hints)):
            self.bound(number)

    def bound(self, number: int) -> None:
        if number in self.united:
            return
        most = max(point[number] for point in self.space().points)
        self.tracer.guard_outcome(live_scalars.Expression(operator.le, (self.leaves[number], most)), True)

    def forget(self) -> None:
        self.around = None
        self.changes += 1
        self.canonical.clear()
        self.compared.clear()

    def note_end(self, bound: Any, end: Any, beyond: int = 0) -> None:
        """A size, or a size plus a constant, is at most ``end - beyond``: larger ones are not tried. Of a symbolic end
        the observed value is the smallest that is tried: a counter stays below it."""
        is_live = isinstance(bound, live_scalars.LiveInt)
        size = multiple_of_symbol(bound.expression, self.of_leaf) if is_live else None
        if size is None:
            return
        if isinstance(end, live_scalars.Live):
            if size.symbol not in self.numbers or size.symbol in self.symbols_of(end.expression):
                return
            end = end.plain()
        most = (end - beyond - size.added) // size.factor
        if most < self.most.get(size.symbol, MOST_SIZE):
            self.most[size.symbol] = most
            self.forget()

    # ---- numbers

    @property
    def is_any(self) -> bool:
        return len(self.settled) < len(self.hints)

    def values(self, expression: Any) -> tuple[int, ...] | None:
        """The values at the points of a number that is computed from sizes only."""
        found = self.numbers_at_points(expression)
        return found if found is not None and all(type(value) is int for value in found) else None

    def numbers_at_points(self, expression: Any) -> tuple[int | float, ...] | None:
        """The same, also where it is no integer."""
        if not isinstance(expression, live_scalars.Expression):
            return (expression,) * len(self.points()) if type(expression) in (int, float) else None
        known = self.of_leaf.get(id(expression))
        if known is not None:
            return tuple([known.of(point[known.symbol]) for point in self.points()])
        if expression.in_graph or expression.operation is None:
            return None
        operands = [self.numbers_at_points(operand) for operand in expression.operands]
        if None in operands:
            return None
        try:
            found = tuple([expression.operation(*values) for values in zip(*operands, strict=True)])  # type: ignore
        except (ArithmeticError, TypeError, ValueError):
            return None
        return found if all(type(value) in (int, float) for value in found) else None

    def takes(self, value: Any) -> bool:
        """Whether a live scalar is computed from sizes only: calls may take it unchanged."""
        return type(value) is live_scalars.LiveInt and self.is_any and self.values(value.expression) is not None

    def varies(self, expression: live_scalars.Expression) -> bool:
        return len(set(self.values(expression) or ())) > 1

    def one_of(self, value: Any) -> Any:
        """One representative of equal numbers, so that a graph has one input for them."""
        values = self.values(value.expression)
        if values is None:
            return value
        expression = self.canonical.setdefault(values, value.expression)
        if expression is not value.expression:
            self.equal.append((value.expression, expression))
        return value if expression is value.expression else live_scalars.make(value.plain(), expression, self.tracer)

    def size(self, values: tuple[int, ...]) -> Any:
        if len(set(values)) == 1:
            return values[0]
        expression = self.canonical.get(values)
        if expression is None:
            fit = self.fitted(values)
            if fit is None:
                raise NoFormula(f"no formula of {values} that also holds far away")
            expression = self.canonical[values] = self.expression(fit)
            self.compared.add(values)
        elif values not in self.compared:  # a formula of the program's
            self.compared.add(values)
            fit = self.fitted(values)
            if fit is not None:
                self.equal.append((expression, self.expression(fit)))
        return live_scalars.make(values[0], expression, self.tracer)

    def fitted(self, values: tuple[int, ...]) -> Formula | None:
        space = self.divided([values])
        try:
            fit = space.fit(values[: len(space.points)])
        except NoFormula:
            return None
        if not isinstance(fit, Formula) or any(
            fit.at(point) != value for point, value in zip(self.points(), values, strict=True)
        ):
            return None
        return fit

    def divided(self, sizes: Iterable[Sequence[int]]) -> Space:
        """The space, with the quotients among these sizes."""
        space, points = self.surroundings()
        sizes = list(map(tuple, sizes))
        wide = replace(space, points=points, known={})
        quotients = wide.divided(sizes).quotients
        if quotients != space.quotients:
            further = wide.telling_point(sizes) if self.telling is not None else None
            if further is not None and len(self.telling) < MOST_TELLING:  # type: ignore[arg-type]
                self.telling.append(further)  # type: ignore[union-attr]
                self.forget()
                raise PointsAdded("there are other quotients with these values")
            space.quotients, space.known = quotients, {}
        return space

    def expression(self, formula: Formula) -> live_scalars.Expression:
        symbols = list(self.leaves)
        for number, added, divisor in formula.quotients:
            size: Any = symbols[number]
            size = live_scalars.Expression(operator.add, (size, added)) if added else size
            symbols.append(live_scalars.Expression(operator.floordiv, (size, divisor)))
            self.is_divided = True
        total: Any = None
        for factor, powers in formula.terms:
            term: Any = factor if factor != 1 or not any(powers) else None
            for leaf, power in zip(symbols, powers, strict=True):
                for _ in range(power):
                    term = leaf if term is None else live_scalars.Expression(operator.mul, (term, leaf))
            total = term if total is None else live_scalars.Expression(operator.add, (total, term))
        return total

    def follows(self, expression: Any) -> bool:
        """Whether a number can be computed from the sizes."""
        return follows_from(self.of_leaf, expression)

    # ---- specialization

    def note_settled(self, expression: live_scalars.Expression) -> None:
        """A number is guarded by value. So are the symbols in it, which are constants from here on."""
        settled = self.symbols_of(expression) - self.settled
        if settled:
            self.settled |= settled
            self.forget()
            for number in sorted(settled):
                self.tracer.guard_value(self.leaves[number], self.hints[number])

    def symbols_of(self, expression: Any) -> set[int]:
        if not isinstance(expression, live_scalars.Expression) or expression.in_graph:
            return set()
        known = self.of_leaf.get(id(expression))
        if known is not None:
            return {known.symbol}
        if expression.operation is None:
            return set()
        return {symbol for operand in expression.operands for symbol in self.symbols_of(operand)}

    def make_way(self, is_possible: Callable[[], bool], why: str, instead: Callable[[], bool] = lambda: False) -> bool:
        """Something is impossible at the points: come nearer, or specialize one size, so that it becomes possible.
        `instead` is tried before a size is specialized: whether it has changed something."""
        level = self.far
        if self.telling:
            self.telling = None
            self.forget()
            if is_possible():
                return True
        while self.far < len(FAR):
            self.far += 1
            self.forget()
            if is_possible():
                if self.far == len(FAR):
                    self.bound_all()
                return True
        self.far = level
        self.forget()
        return instead() or self.unite_two(is_possible) or self.settle_one(is_possible, why)

    def unite_two(self, is_possible: Callable[[], bool]) -> bool:
        """Of two symbolic sizes make one if that makes it possible: they have the same value, or one is a multiple of
        the other. Examples: the length of a cache, and the counter that its mask is made of, which have not been seen
        to change by the same amount. Texts of 7 words by 4, and the 28 words that follow in one row."""
        left = [k for k in range(len(self.hints)) if k not in self.settled]
        pairs = [sorted(pair, key=lambda k: (self.hints[k], k in self.numbers)) for pair in combinations(left, 2)]
        found = [(factor, one, other) for one, other in pairs if (factor := self.factor_between(one, other))]
        for factor, one, other in sorted(found):
            before = dict(self.of_leaf)
            self.of_leaf.update(
                {
                    at: LeafSize(one, leaf.added, leaf.factor * factor)
                    for at, leaf in before.items()
                    if leaf.symbol == other
                }
            )
            self.forget()
            if is_possible():
                self.settled.add(other)  # no expression is made of it any more
                self.united.add(other)
                self.places[one] += self.places[other]
                self.places[other] = []
                if other in self.most:
                    self.most[one] = min(self.most[other] // factor, self.most.get(one, MOST_SIZE))
                self.forget()
                base = self.leaves[one]
                base = base if factor == 1 else live_scalars.Expression(operator.mul, (base, factor))
                self.tracer.guard_outcome(live_scalars.Expression(operator.eq, (base, self.leaves[other])), True)
                return True
            self.of_leaf = before
            self.forget()
        return False

    def factor_between(self, one: int, other: int) -> int | None:
        """How many times the size `one` the size `other` is, as far as their values are known."""
        factor, rest = divmod(self.hints[other], self.hints[one])
        moves = self.moves[one], self.moves[other]
        if rest or factor > 1 and None not in moves and (moves[0][0] * factor, moves[0][1] * factor) != moves[1]:  # type: ignore[index]
            return None
        return factor

    def take_multiples(self, is_possible: Callable[[], bool]) -> bool:
        """Keep sizes symbolic, but only multiples of a power of two, if that makes it possible. Example: an image is
        halved and doubled again, and is joined with what it was."""
        left = [k for k in range(len(self.hints)) if k not in self.settled and k not in self.units]
        if not self.is_possible_with({k: MOST_UNIT for k in left}, is_possible):
            return False
        unit = next(
            unit for unit in UNITS if unit == MOST_UNIT or self.is_possible_with(dict.fromkeys(left, unit), is_possible)
        )
        needed = dict.fromkeys(left, unit)
        for k in left:
            others = {other: unit for other in needed if other != k}
            if self.is_possible_with(others, is_possible):
                needed = others
        self.units.update((k, self.unit_of(k, unit)) for k in needed)
        self.forget()
        for k in needed:
            rest = live_scalars.Expression(operator.mod, (self.leaves[k], self.units[k]))
            self.tracer.guard_outcome(live_scalars.Expression(operator.eq, (rest, 0)), True)
        return True

    def unit_of(self, number: int, most: int) -> int:
        """The largest power of two up to `most` that divides the observed size."""
        return math.gcd(self.hints[number], most)

    def is_possible_with(self, units: dict[int, int], is_possible: Callable[[], bool]) -> bool:
        before = self.units
        self.units = {**before, **{k: self.unit_of(k, most) for k, most in units.items()}}
        self.forget()
        try:
            return is_possible()
        finally:
            self.units = before
            self.forget()

    def settle_one(self, is_possible: Callable[[], bool], why: str) -> bool:
        """Of several symbolic sizes, specialize one if that alone makes it possible. Example: the batch size is
        symbolic for the tokens, but fixed by the cache that they are written to."""
        left = [k for k in range(len(self.hints)) if k not in self.settled]
        numbers = [k for k in left if k in self.numbers]
        for some in (*([k] for k in left), numbers):  # numbers are more often no sizes at all, like a dimension
            if not 0 < len(some) < len(left):
                continue
            self.settled.update(some)
            self.forget()
            is_found = is_possible()
            self.settled.difference_update(some)
            self.forget()
            if is_found:
                events.emit("guards.sizes", text=f"{len(some)} of the sizes are constants: {why}")
                for number in some:
                    self.tracer.guard_value(self.leaves[number], self.hints[number])
                return True
        return False

    def settle_all(self, why: str) -> None:
        """Specialize every size from here on."""
        self.offered.clear()
        if self.is_any:
            events.emit("guards.sizes", text=f"compiled for one size: {why}")
        for number, leaf in enumerate(self.leaves):
            if number not in self.settled:
                self.settled.add(number)
                self.tracer.guard_value(leaf, self.hints[number])


def follows_from(leaves: Container[int], expression: Any) -> bool:
    """Whether a number can be computed from sizes: the expressions with these ids."""
    if not isinstance(expression, live_scalars.Expression):
        return not hasattr(expression, "base")
    if expression.in_graph:
        return False
    return id(expression) in leaves or (
        expression.operation is not None and all(follows_from(leaves, operand) for operand in expression.operands)
    )
