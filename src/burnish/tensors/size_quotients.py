"""Quotients of size symbols, ``(symbol + added) // divisor``, as after a strided convolution, slice or pool.

A few points rarely determine one: for sizes around 32, windows of 15 are as many as windows of 8 in 16 elements less.
All quotients with the values of a column are `Rivals`. A size for which they differ tells which of them it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Point = tuple[int, ...]
"""An example: one value for each symbol."""

Quotient = tuple[int, int, int]
"""A further symbol, ``(symbol + added) // divisor``: the number of the symbol, the number added, and the divisor. The
half of a half is a quarter."""

MOST_DIVISOR = 128

MOST_SIZES = 4 * MOST_DIVISOR
"""So many sizes are looked at for one for which rivals differ. Two that do not differ there are equal."""


class Rivals(NamedTuple):
    """The quotients of one symbol by one divisor that have the same values at all points."""

    symbol: int
    lowest: int
    """The least and the largest number that may be added. They are less than the divisor apart."""
    highest: int
    divisor: int

    @property
    def count(self) -> int:
        return self.highest - self.lowest + 1

    @property
    def simplest(self) -> Quotient:
        """The one that adds the number nearest to 0."""
        return self.symbol, min(max(self.lowest, 0), self.highest), self.divisor

    def values(self, point: Point) -> Iterator[tuple[int, int]]:
        """Their values at a point, each with the number of quotients that have it."""
        size = point[self.symbol]
        least, most = (size + self.lowest) // self.divisor, (size + self.highest) // self.divisor
        if least == most:
            yield least, self.count
        else:
            first = most * self.divisor - size  # the least number added that gives the larger value
            yield from ((least, first - self.lowest), (most, self.highest - first + 1))


def with_quotients(point: Point, quotients: Iterable[Quotient]) -> Point:
    return (*point, *[(point[symbol] + added) // divisor for symbol, added, divisor in quotients])


def rivals_of(points: Sequence[Point], values: Sequence[int]) -> list[Rivals]:
    """All quotients with these values at the points, those by the smallest divisor first."""
    found = []
    for symbol, column in enumerate(zip(*points, strict=True)):
        low, high = column.index(min(column)), column.index(max(column))
        step, rise = column[high] - column[low], values[high] - values[low]
        if rise <= 0:
            continue
        # The rise is less than 1 from the quotient of the step.
        most = min(MOST_DIVISOR, (step - 1) // (rise - 1)) if rise > 1 else MOST_DIVISOR
        for divisor in range(max(2, step // (rise + 1) + 1), most + 1):
            least = [value * divisor - size for value, size in zip(values, column, strict=True)]
            lowest, highest = max(least), min(least) + divisor - 1
            if lowest <= highest:
                found.append(Rivals(symbol, lowest, highest, divisor))
    return sorted(found, key=lambda rivals: rivals.divisor)


def telling_size(rivals: Sequence[Rivals], point: Point, symbol: int, sizes: Iterable[int]) -> int | None:
    """The first size of a symbol that excludes half of the rivals, whichever is right, or else the one that excludes
    most. None if they are equal for all of these sizes. `point` has the other symbols."""
    fewest = total = sum(each.count for each in rivals)
    best = None
    for size in sizes:
        counts: Counter[int] = Counter()
        for each in rivals:
            for value, count in each.values((*point[:symbol], size, *point[symbol + 1 :])):
                counts[value] += count
        left = max(counts.values())
        if left < fewest:
            best, fewest = size, left
            if left <= (total + 1) // 2:
                break
    return best
