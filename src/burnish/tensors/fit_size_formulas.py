"""Symbolic shapes: fits numbers in compiled code with formulas of size symbols, from several examples.

    space = Space(("s0", "s1"), [(64, 2), (65, 3), (67, 7), (71, 5)])
    space.fit([49152, 74880, 128640 + 0, ...])      768*s0*s1
    space.fit([64, 65, 67, 71])                     s0

The compiler runs for several example sizes and knows nothing of symbols. A number that differs between the results
becomes a `Formula` of the sizes, if one of a few simple forms fits every example. If none fits, the code is
specialized: it is compiled again for each size. The example sizes have no common pattern, so formulas that agree at the
examples agree everywhere.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .size_quotients import MOST_SIZES, Point, Quotient, rivals_of, telling_size, with_quotients

Monomial = tuple[Point, list[int]]
"""The powers of the symbols, and the product of them at each point."""

MOST_QUOTIENTS = 12
"""For more, too many products would have to be tried."""

DISTANCES = (0, 1, 4, 13, 7, 3, 10, 6)
"""Distances of the examples from the first size: small ones, so that the compiler makes the same choices for all."""

FEW = 4
"""For more symbols there is one more point, as more products of them could be equal by chance. And there are not enough
DISTANCES for them."""

FACTORS = (1, 2, 3, 4)
"""Factors of the sizes from `Space.coprime_points`."""

SCALES = (1, 8)
"""How much larger they may be. The scheduler compares sizes: it reads an operand again that has a sixteenth of a
result's elements, and stores a result for others to read. The points may lie on both sides of such a limit, and far
above it they lie on one."""

MOST_TRIES = 16
"""How many further points are asked for to tell quotients apart. Each excludes about half of those that fit."""

LEAST = 2
"""Smaller sizes have other meanings."""

POINTS = 4
FURTHER_POINTS = 2
FARTHER = 11
"""More, for programs that divide sizes: quotients are equal at some of the others."""

DEGREE = 3

FARTHER_DEGREE, MOST_PRODUCTS = 5, 1000
"""For a single product, which few examples determine. The scores of attention over several sequences in each element of
a batch are as many as a product of four or five sizes."""

NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
"""An integer in a text."""

ALIGNMENT = 64
"""Alignment, in bytes, of values in an arena."""


class GivenSize(int):
    """A size that is an input itself, in an example: a constant there. Other integers among the inputs stay live."""


class FollowedSize(GivenSize):
    """It follows its formula wherever the program runs, so that a symbol may be read from it."""


class NoFormula(Exception):
    """The compiled code depends on the sizes in a way that no formula expresses."""


class NoNumber(NoFormula):
    """A number is not a simple function of the sizes."""


class StructureDiffers(NoFormula):
    """The results for the examples differ in more than numbers, perhaps because a size is a multiple of another."""


@dataclass(frozen=True, slots=True)
class Formula:
    """The sum of `factor * product(symbol ** power)` over `terms`. A term is a pair of factor and powers."""

    names: tuple[str, ...]
    """Of the symbols, as Python expressions: the sizes, then the quotients."""
    terms: tuple[tuple[int, Point], ...]
    quotients: tuple[Quotient, ...] = ()

    def at(self, point: Point) -> int:
        symbols = with_quotients(point, self.quotients)
        return sum(factor * math.prod(map(pow, symbols, powers)) for factor, powers in self.terms)

    @property
    def divisor(self) -> int:
        """The largest number known to divide the value for all sizes."""
        return math.gcd(*(factor for factor, _ in self.terms))

    def __str__(self) -> str:
        """A Python expression."""
        return " + ".join(_term(self.names, factor, powers) for factor, powers in self.terms)


def _term(names: tuple[str, ...], factor: int, powers: Point) -> str:
    factors = [name for name, power in zip(names, powers, strict=True) for _ in range(power)]
    return "*".join([str(factor)] * (factor != 1 or not factors) + factors)


@dataclass(frozen=True, slots=True)
class SpecialSizes:
    """For which sizes a program may do something else than for those around them: where a number in it is 0 or 1, and
    where two are equal that differ at first. A transposed square has its old shape, and is then often a view, no copy.
    """

    formulas: tuple[Formula, ...]
    constants: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    """Of formulas and constants, by position, that differ at the first point and mean something to each other."""

    @classmethod
    def among(cls, groups: Iterable[Iterable[int | Formula | None]], first: Point) -> SpecialSizes:
        """`groups`: the numbers that are compared with each other."""
        sets = list(dict.fromkeys(frozenset(n for n in group if n not in (None, 0, 1)) for group in groups))
        numbers = dict.fromkeys(itertools.chain.from_iterable(sets))
        formulas = tuple(sorted([n for n in numbers if isinstance(n, Formula)], key=str))
        constants = tuple(sorted([n for n in numbers if isinstance(n, int)]))
        places = {number: k for k, number in enumerate((*formulas, *constants))}
        values = (*(formula.at(first) for formula in formulas), *constants)
        pairs = {pair for some in sets for pair in itertools.combinations(sorted(places[n] for n in some), 2)}  # type: ignore[index]
        return cls(
            formulas,
            constants,
            tuple([(k, m) for k, m in sorted(pairs) if k < len(formulas) and values[k] != values[m]]),
        )

    def contain(self, point: Point) -> bool:
        values = [formula.at(point) for formula in self.formulas]
        if any(value <= 1 for value in values):
            return True
        values += self.constants
        return any(values[k] == values[m] for k, m in self.pairs)


@dataclass(slots=True)
class Space:
    """Symbols and examples of their values. The first example is the one that the program was called with."""

    names: tuple[str, ...]
    points: Sequence[Point]
    quotients: tuple[Quotient, ...] = ()
    known: dict[tuple[int, ...], int | Formula | None] = field(default_factory=dict)
    units: tuple[int, ...] = ()
    """What each symbol is a multiple of."""

    further: Sequence[Point] = ()
    """Points that are added if the program divides sizes."""
    most: Mapping[str, int] = field(default_factory=dict)
    """The largest sizes that may be tried, of symbols that have a limit."""
    telling: tuple[Point, ...] = ()
    """Further points, for which only sizes were asked: they tell the quotients from others."""

    def __post_init__(self) -> None:
        self.units = self.units or (1,) * len(self.names)

    @classmethod
    def around(
        cls, sizes: Mapping[str, int], most: Mapping[str, int] | None = None, units: Mapping[str, int] | None = None
    ) -> Space:
        """Examples near given sizes, up to `most`."""
        return cls.within({name: (size, LEAST, (most or {}).get(name)) for name, size in sizes.items()}, units)

    @classmethod
    def within(cls, sizes: Mapping[str, tuple[int, int, int | None]], units: Mapping[str, int] | None = None) -> Space:
        """Examples near given sizes, and between their least and most. No two symbols change by the same distances.
        Sizes with a unit are multiples of it."""
        columns: list[list[int]] = []
        distances, steps = steps_of(len(sizes))
        for (name, (size, least, most)), taken in zip(sizes.items(), steps, strict=True):
            unit = (units or {}).get(name, 1)
            tried = [size + sign * distance * unit for sign in (1, -1) for distance in distances]
            near = [x for x in dict.fromkeys(tried) if least <= x and (most is None or x <= most)] or [size]
            near = near[: len(distances)]
            columns.append(unrelated_column([size, *(near[step % len(near)] for step in taken[1:])], near, columns))
        counted = tuple([(units or {}).get(name, 1) for name in sizes])
        some, further = parted(list(zip(*columns, strict=True)))
        limits = {name: most for name, (_, _, most) in sizes.items() if most is not None}
        return cls(tuple(sizes), some, units=counted, further=further, most=limits)

    def fewest_points(self) -> Space:
        """For one symbol, the two nearest points and the farthest. This is enough for all formulas except sums of three
        terms, which are then not tried. For several symbols, all points."""
        return replace(self, points=[*self.points[:2], self.points[-1]], known={}) if len(self.names) == 1 else self

    def more_points(self) -> Space:
        return replace(self, points=[*self.points, *self.further], further=(), known={})

    def coprime_points(self, scale: int = 1) -> Space:
        """Other points near these, times `scale`, with sizes that share no factors with other sizes in a program: small
        multiples of primes. A length of 128 is twice a head size of 64, and the compiler may merge loops over both. A
        length of 134 is unrelated to it."""
        points = []
        for number in range(points_of(len(self.names)) + FURTHER_POINTS):
            point = []
            for k, (size, unit) in enumerate(zip(self.points[0], self.units, strict=True)):
                factor = FACTORS[(number + k) % len(FACTORS)]
                rounds = number // POINTS + k // len(FACTORS) * (number + 1)
                least = -(-size * scale // (factor * unit))
                point.append(prime_from(least + rounds * FARTHER) * factor * unit)
            points.append(tuple(point))
        some, further = parted(points)
        return replace(self, points=some, further=further, known={})

    def divided(self, sizes: Iterable[Sequence[int]]) -> Space:
        """The space with further symbols, for sizes that are quotients of a symbol at all points. One that is a symbol
        plus a number, as after padding, becomes a symbol too: products of several such sizes have too many terms."""
        space = self
        for values in dict.fromkeys(map(tuple, sizes)):
            if len(space.quotients) == MOST_QUOTIENTS:
                break
            found = space.found(values)
            quotient = space.quotient_of(values) if found is None else space.symbol_plus_number(found)
            if quotient is not None:
                space = replace(space, quotients=(*space.quotients, quotient), known={})
        return space

    def quotient_of(self, values: tuple[int, ...]) -> Quotient | None:
        rivals = rivals_of(self.points, values)
        return rivals[0].simplest if rivals else None

    def symbol_plus_number(self, found: int | Formula) -> Quotient | None:
        """As a quotient."""
        if isinstance(found, Formula) and len(found.terms) == 2:
            (factor, powers), (added, others) = found.terms
            if factor == 1 == sum(powers) and not any(others):
                own = powers.index(1)
                if own < len(self.names):
                    return own, added, 1
                symbol, before, divisor = self.quotients[own - len(self.names)]
                return symbol, before + added * divisor, divisor
        return None

    def decide(self, columns_at: Callable[[Sequence[Point]], Iterable[Sequence[int]]]) -> Space:
        """The space with the quotients among sizes, as `divided`, none of which is one by chance. `columns_at` gives
        the sizes at points: at those of the space, and at further ones that tell quotients apart."""
        space = self
        for _ in range(MOST_TRIES):
            wide = space.with_telling_points()
            columns = list(dict.fromkeys(map(tuple, columns_at(wide.points))))
            further = wide.telling_point(columns) or wide.point_far_from_others(columns)
            if further is None:
                return replace(space, quotients=wide.divided(columns).quotients, known={})
            space = replace(space, telling=(*space.telling, further))
        raise NoFormula("sizes are divided in too many ways")

    def with_telling_points(self) -> Space:
        return replace(self, points=[*self.points, *self.telling], telling=(), known={})

    def telling_point(self, columns: Iterable[Point]) -> Point | None:
        """A point that tells the quotient in one of the columns from others with these values; None if there is no need
        of one. Columns with quotients of different symbols share it."""
        whole = replace(self, quotients=(), known={})
        found: dict[int, int] = {}
        for values in columns:
            rivals = rivals_of(self.points, values)
            symbols = {each.symbol for each in rivals}
            if sum(each.count for each in rivals) < 2 or symbols & found.keys() or found and len(symbols) > 1:
                continue
            if whole.found(values) is not None:
                continue
            for symbol in symbols:
                size = telling_size(rivals, self.points[0], symbol, self.sizes_of(symbol))
                if size is not None:
                    found[symbol] = size
                    break
            if found and len(symbols) > 1:
                break  # a size of the other symbol may make their quotients equal
        return tuple([found.get(symbol, size) for symbol, size in enumerate(self.points[0])]) if found else None

    def point_far_from_others(self, columns: Iterable[Point]) -> Point | None:
        """A point with other sizes far away, for a quotient of one that may be one of a sum of both; None if there is
        no need of one."""
        for values in columns:
            for symbol in {each.symbol for each in rivals_of(self.points, values)}:
                others = [k for k in range(len(self.names)) if k != symbol]
                far = list(self.points[0])
                for k in others:
                    far[k] = max(self.sizes_of(k), key=lambda size, own=far[k]: abs(size - own), default=far[k])
                if tuple(far) not in self.points:
                    return tuple(far)
        return None

    def sizes_of(self, symbol: int) -> Iterator[int]:
        """Those that a symbol may have, the nearest first."""
        first, unit, most = self.points[0][symbol], self.units[symbol], self.most.get(self.names[symbol])
        upwards = range(first + unit, first + MOST_SIZES * unit, unit)
        yield from upwards if most is None else range(first + unit, min(upwards.stop, most + 1), unit)
        if most is not None:
            yield from range(first - unit, max(LEAST, first - MOST_SIZES * unit) - 1, -unit)

    def fit(self, values: Sequence[int]) -> int | Formula:
        """The constant or formula with these values at the points. Raises NoFormula if there is none."""
        key = tuple(values)
        if key not in self.known:
            self.known[key] = self.found(key)
        found = self.known[key]
        if found is None:
            raise NoNumber(f"{list(values)} for {', '.join(self.names)} = {list(self.points)}")
        return found

    def symbol(self, number: int) -> Formula:
        return self.fit([point[number] for point in self.points])  # type: ignore[return-value]

    def found(self, values: tuple[int, ...]) -> int | Formula | None:
        if len(set(values)) == 1:
            return values[0]
        is_single = len(self.names) == 1 and len(self.points) > 3
        return (
            self.of_one(values, False)
            or self.of_two(values)
            or (self.of_two_and_more(values) if is_single else self.of_two_symbols_and_more(values))
            or (self.of_one(values, True) if self.quotients else None)
            or self.of_long_product(values)
            or self.of_product(values, self.monomials(True, (2, 3), is_mixed=True))
        )

    def of_one(self, values: tuple[int, ...], has_quotients: bool) -> Formula | None:
        """A product, or the sum of one and a number. Quotients are equal at several points, where a sum would fit by
        chance: one of a product with quotients is not tried."""
        monomials = self.monomials(has_quotients, range(1, DEGREE + 1))
        found = self.of_product(values, monomials)
        if found is not None:
            return found
        for powers, products in monomials:
            if has_quotients and sum(powers) > 1:
                continue
            at = next((k for k, product in enumerate(products) if product != products[0]), 0)
            step, rest = divmod(values[at] - values[0], products[at] - products[0]) if at else (0, 1)
            added = values[0] - step * products[0]
            if not rest and all(step * p + added == v for p, v in zip(products, values, strict=True)):
                return self.formula((step, powers), (added, ()))
        return None

    def of_product(self, values: tuple[int, ...], monomials: Iterable[Monomial]) -> Formula | None:
        for powers, products in monomials:
            factor, rest = divmod(values[0], products[0]) if products[0] else (0, 1)
            if not rest and all(factor * p == v for p, v in zip(products, values, strict=True)):
                return self.formula((factor, powers))
        return None

    def of_long_product(self, values: tuple[int, ...]) -> Formula | None:
        count = len(self.names) + len(self.quotients)
        degrees = range(DEGREE + 1, FARTHER_DEGREE + 1)
        few = [degree for degree in degrees if math.comb(count + degree - 1, degree) <= MOST_PRODUCTS]
        return self.of_product(values, self.monomials(True, few))

    def of_two(self, values: tuple[int, ...]) -> Formula | None:
        """A sum of two products."""
        for (first, a), (second, b) in itertools.combinations(self.monomials(False, range(1, DEGREE + 1)), 2):
            at = next((k for k, (p, q) in enumerate(zip(a, b, strict=True)) if a[0] * q != p * b[0]), 0)
            if not at:
                continue
            base = a[0] * b[at] - a[at] * b[0]
            x, x_rest = divmod(values[0] * b[at] - values[at] * b[0], base)
            y, y_rest = divmod(a[0] * values[at] - a[at] * values[0], base)
            if not x_rest and not y_rest and all(x * p + y * q == v for p, q, v in zip(a, b, values, strict=True)):
                return self.formula((x, first), (y, second))
        return None

    def of_two_and_more(self, values: tuple[int, ...]) -> Formula | None:
        """A quadratic polynomial of one size. The second divided difference gives the factor of the square."""
        (a,), (b,), (c,) = self.points[:3]
        base = (a - b) * (a - c) * (b - c)
        if not base:  # few sizes are possible
            return None
        square, rest = divmod(values[0] * (b - c) - values[1] * (a - c) + values[2] * (a - b), base)
        if rest:
            return None
        added = values[0] - square * a * a
        linear, rest = divmod(values[1] - square * b * b - added, b - a)
        added -= linear * a
        found = self.formula((square, (2,)), (linear, (1,)), (added, (0,)))
        return found if not rest and all(found.at(p) == v for p, v in zip(self.points, values, strict=True)) else None

    def of_two_symbols_and_more(self, values: tuple[int, ...]) -> Formula | None:
        """The sum or difference of two symbols, plus a number: how much of a row is behind a position."""
        for (first, a), (second, b) in itertools.permutations(self.monomials(False, (1,)), 2):
            for sign in (1, -1):
                rest = {v - p - sign * q for p, q, v in zip(a, b, values, strict=True)}
                if len(rest) == 1:
                    return self.formula((1, first), (sign, second), (rest.pop(), ()))
        return None

    def formula(self, *terms: tuple[int, Point]) -> Formula:
        names = [*self.names]
        for symbol, added, divisor in self.quotients:
            whole = f"({names[symbol]} + {added})" if added else names[symbol]
            names.append(f"({whole} // {divisor})" if divisor > 1 else whole)
        padded = [(factor, (*powers, *[0] * (len(names) - len(powers)))) for factor, powers in terms]
        return Formula(tuple(names), tuple(padded), self.quotients)

    def monomials(self, has_quotients: bool, degrees: Iterable[int], is_mixed: bool = False) -> list[Monomial]:
        """Products of powers of symbols, simplest first, with their values at the points. A size and quotients of it
        are not multiplied with each other, unless `is_mixed`: a spectrum of a square image has such sizes."""
        quotients = self.quotients if has_quotients else ()
        size_of = [*range(len(self.names)), *(symbol for symbol, *_ in quotients)]
        found = []
        for degree in degrees:
            for some in itertools.combinations_with_replacement(range(len(size_of)), degree):
                used = {*some}
                powers = tuple(map(some.count, range(len(size_of))))
                if max(powers) < 3 and (is_mixed or len({size_of[k] for k in used}) == len(used)):
                    found.append(powers)
        count = len(self.names)
        found.sort(key=lambda p: (any(p[count:]), sum(p), max(p), p))
        points = [with_quotients(point, quotients) for point in self.points]
        return [(p, [math.prod(map(pow, point, p)) for point in points]) for p in found]


def points_of(count: int) -> int:
    """How many points there are at first for so many symbols."""
    return POINTS + (count > FEW)


@functools.cache
def steps_of(count: int) -> tuple[Sequence[int], list[list[int]]]:
    """Distances, and for each of `count` symbols its steps through them, one for each point. No two symbols change by
    distances that are related."""
    numbers = range(points_of(count) + FURTHER_POINTS)
    if count <= FEW:
        return DISTANCES, [[number * (2 * k + 1) for number in numbers] for k in range(count)]
    for prime in (11, 23, 47):
        found: list[list[int]] = []
        for factor, other in itertools.product(range(1, prime), range(prime)):
            steps = [0, *((pow(k, -1, prime) * factor + k * k * other) % prime for k in numbers[1:])]
            first = steps[: points_of(count)]
            differ = len({*first}) > 3 and len({step % 2 for step in first}) == 2 == len({first[0], first[1]})
            if differ and not any(are_related(first, each) for each in found):
                found.append(steps)
            if len(found) == count:
                return range(prime), found
    raise NoFormula(f"{count} symbols are too many")


def are_related(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether the values of a symbol are those of another times a factor plus a number: formulas of the one would fit
    the other. A constant is related to nothing."""
    at = next((k for k, x in enumerate(one) if x != one[0]), 0)
    if len({*other}) == 1 or not at:
        return False
    pairs = zip(one, other, strict=False)
    return all((x - one[0]) * (other[at] - other[0]) == (y - other[0]) * (one[at] - one[0]) for x, y in pairs)


def unrelated_column(column: list[int], near: Sequence[int], others: Sequence[list[int]]) -> list[int]:
    """The values of a symbol, or others near the first if they are related to another symbol's. Few sizes are possible
    for some symbols."""
    count = len(column) - FURTHER_POINTS
    for some in itertools.chain([column[1:count]], itertools.product(near, repeat=count - 1)):
        tried = [column[0], *some]
        is_constant = len({*tried}) == 1 < len(near)
        if not is_constant and not any(are_related(tried, other[:count]) for other in others):
            return [*tried, *column[count:]]
    raise NoFormula("too many symbols have too few sizes")


def parted(points: list[Point]) -> tuple[list[Point], list[Point]]:
    """The first points, and the further ones. Related symbols would be taken for each other."""
    count = len(points) - FURTHER_POINTS
    columns = list(zip(*points[:count], strict=True))
    if any(are_related(one, other) for one, other in itertools.combinations(columns, 2)):
        raise NoFormula("sizes cannot be told apart")
    return points[:count], points[count:]


def prime_from(n: int) -> int:
    """The smallest prime number from n on that does not divide any of the FACTORS."""
    n = max(n, 5)
    while any(n % k == 0 for k in range(2, math.isqrt(n) + 1)):
        n += 1
    return n


def slot_starts(sizes: Sequence[int]) -> list[int]:
    """The start of each slot of an arena, then the end of the last slot."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
    return starts
