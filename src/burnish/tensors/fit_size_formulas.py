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

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Point = tuple[int, ...]
"""An example: one value for each symbol."""

DISTANCES = (0, 1, 4, 13, 7, 3, 10, 6)
"""Distances of the examples from the first size. They are small, so that the compiler makes the same choices for all.
They cover every remainder by 2, 3 and 4, so that halving and padding fit no simple formula by chance."""

FACTORS = (1, 2, 3, 4)
"""Factors of the sizes from `Space.coprime_points`. They, too, give every remainder by 2, 3 and 4."""

POINTS = 4
DEGREE = 3

NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
"""An integer in a text."""

ALIGNMENT = 64
"""Alignment, in bytes, of values in an arena."""


class GivenSize(int):
    """A size that is an input itself, in an example: a constant there. Other integers among the inputs stay live."""


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
    terms: tuple[tuple[int, Point], ...]

    def at(self, point: Point) -> int:
        return sum(factor * math.prod(map(pow, point, powers)) for factor, powers in self.terms)

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


@dataclass(slots=True)
class Space:
    """Symbols and examples of their values. The first example is the one that the program was called with."""

    names: tuple[str, ...]
    points: Sequence[Point]
    known: dict[tuple[int, ...], int | Formula | None] = field(default_factory=dict)

    @classmethod
    def around(cls, sizes: Mapping[str, int], most: Mapping[str, int] | None = None) -> Space:
        """Examples near given sizes, or below them where `most` is the upper bound. No two symbols change by the same
        distances."""
        points = []
        for number in range(POINTS):
            point = []
            for k, (name, size) in enumerate(sizes.items()):
                distance = DISTANCES[(number * (2 * k + 1)) % len(DISTANCES)] if number else 0
                is_near_the_end = size + max(DISTANCES) > (most or {}).get(name, math.inf)
                point.append(size - distance if is_near_the_end and size > 2 * max(DISTANCES) else size + distance)
            points.append(tuple(point))
        return cls(tuple(sizes), points)

    @classmethod
    def within(cls, sizes: Mapping[str, tuple[int, int, int | None]]) -> Space:
        """Examples near given sizes, and between their least and most."""
        columns = []
        for k, (size, least, most) in enumerate(sizes.values()):
            tried = [size + sign * distance for sign in (1, -1) for distance in DISTANCES]
            near = [x for x in dict.fromkeys(tried) if least <= x and (most is None or x <= most)] or [size]
            near = near[: len(DISTANCES)]
            columns.append([size, *(near[number * (2 * k + 1) % len(near)] for number in range(1, POINTS))])
        return cls(tuple(sizes), list(zip(*columns, strict=True)))

    def fewest_points(self) -> Space:
        """For one symbol, the two nearest points and the farthest. This is enough for all formulas except sums of three
        terms, which are then not tried. For several symbols, all points."""
        return Space(self.names, [*self.points[:2], self.points[-1]]) if len(self.names) == 1 else self

    def coprime_points(self, scale: int = 1) -> Space:
        """Other points near these, times `scale`, with sizes that share no factors with other sizes in a program: small
        multiples of primes. A length of 128 is twice a head size of 64, and the compiler may merge loops over both. A
        length of 134 is unrelated to it."""
        points = []
        for number in range(POINTS):
            factors = [FACTORS[(number + k) % len(FACTORS)] for k in range(len(self.names))]
            points.append(
                tuple(
                    [
                        prime_from(-(-size * scale // factor)) * factor
                        for size, factor in zip(self.points[0], factors, strict=True)
                    ]
                )
            )
        return Space(self.names, points)

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
        for powers, products in self.monomials():
            factor, rest = divmod(values[0], products[0]) if products[0] else (0, 1)
            if not rest and all(factor * p == v for p, v in zip(products, values, strict=True)):
                return Formula(self.names, ((factor, powers),))
        none = (0,) * len(self.names)
        for powers, products in self.monomials():
            step, rest = (
                divmod(values[1] - values[0], products[1] - products[0]) if products[1] != products[0] else (0, 1)
            )
            added = values[0] - step * products[0]
            if not rest and all(step * p + added == v for p, v in zip(products, values, strict=True)):
                return Formula(self.names, ((step, powers), (added, none)))
        return self.of_two(values) or (
            self.of_two_and_more(values) if len(self.names) == 1 and len(self.points) > 3 else None
        )

    def of_two(self, values: tuple[int, ...]) -> Formula | None:
        """A sum of two products."""
        for (first, a), (second, b) in itertools.combinations(self.monomials(), 2):
            base = a[0] * b[1] - a[1] * b[0]
            if not base:
                continue
            x, x_rest = divmod(values[0] * b[1] - values[1] * b[0], base)
            y, y_rest = divmod(a[0] * values[1] - a[1] * values[0], base)
            if not x_rest and not y_rest and all(x * p + y * q == v for p, q, v in zip(a, b, values, strict=True)):
                return Formula(self.names, ((x, first), (y, second)))
        return None

    def of_two_and_more(self, values: tuple[int, ...]) -> Formula | None:
        """A quadratic polynomial of one size. The second divided difference gives the factor of the square."""
        (a,), (b,), (c,) = self.points[:3]
        base = (a - b) * (a - c) * (b - c)
        square, rest = divmod(values[0] * (b - c) - values[1] * (a - c) + values[2] * (a - b), base)
        if rest:
            return None
        added = values[0] - square * a * a
        linear, rest = divmod(values[1] - square * b * b - added, b - a)
        added -= linear * a
        found = Formula(self.names, ((square, (2,)), (linear, (1,)), (added, (0,))))
        return found if not rest and all(found.at(p) == v for p, v in zip(self.points, values, strict=True)) else None

    def monomials(self) -> list[tuple[Point, list[int]]]:
        """Products of powers of symbols, simplest first, with their values at the points."""
        powers = [p for p in itertools.product(range(3), repeat=len(self.names)) if 0 < sum(p) <= DEGREE]
        powers.sort(key=lambda p: (sum(p), max(p)))
        return [(p, [math.prod(map(pow, point, p)) for point in self.points]) for p in powers]


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
