"""Splits the iteration space of a loop at the borders between the parts of a concatenated value.

    y = exp cat([a: f32[64, 4], b: f32[64, 12]], 1)

    loop i0 < 64, i1 < 16        =>    loop i0 < 64, i1 < 4      y[16*i0 + i1] = exp a[4*i0 + i1]
                                       loop i0 < 64, i1 < 12     y[16*i0 + i1 + 4] = exp b[12*i0 + i1]

Code that builds the expressions of a box calls `part_at` to find the part that an index falls into. If there may be
several, it raises `Straddles`, and `boxes_of` tries again with the two halves of the box. Within a box every index is
affine, without a branch for each element. Variables of a reduction are never split: rows stay whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ...ir.graph import Value
from ...ops.shapes.concat_lowering import Concat, Part
from ...tensors.views.affine_indices import Affine, Index
from ...tensors.views.index_range_conditions import note_within

T = TypeVar("T")

MOST = 16
"""Most boxes of one kernel: the code of each is compiled separately."""


@dataclass(frozen=True, slots=True)
class IndexBox:
    """A part of an iteration space: its start and its extents."""

    starts: tuple[int, ...]
    extents: tuple[int, ...]

    def inside(self, index: Index) -> Index:
        """Converts an index over the whole space to one over the variables of this box, which start at 0."""
        if not any(self.starts):
            return index
        return tuple(x + sum(c * start for c, start in zip(x.coefficients, self.starts, strict=True)) for x in index)

    def outside(self, index: Index) -> Index:
        if not any(self.starts):
            return index
        return tuple(x + -sum(c * start for c, start in zip(x.coefficients, self.starts, strict=True)) for x in index)

    def halves(self, variable: int, at: int) -> tuple[IndexBox, IndexBox]:
        n = self.extents[variable]
        return self._along(variable, 0, at), self._along(variable, at, n - at)

    def _along(self, variable: int, start: int, size: int) -> IndexBox:
        return IndexBox(
            tuple(s + start if k == variable else s for k, s in enumerate(self.starts)),
            tuple(size if k == variable else n for k, n in enumerate(self.extents)),
        )


class Straddles(Exception):
    """An index may fall into several parts of `value`. Splitting before step `at` of the variable separates them."""

    def __init__(self, value: Value, variable: int, at: int):
        super().__init__(f"{value} is read across its parts")
        self.value, self.variable, self.at = value, variable, at


class Uncuttable(Exception):
    """The box cannot be split as a concatenated value would need it; the message says why."""

    def __init__(self, value: Value, why: str):
        super().__init__(why)
        self.value = value


def boxes_of(
    extents: tuple[int, ...], walk: Callable[[IndexBox], T], inner: frozenset[int] | None = None, most: int = MOST
) -> list[tuple[IndexBox, T]]:
    """Splits the space until `walk` succeeds on each box; returns the boxes and what it returned, in order."""
    found: list[tuple[IndexBox, T]] = []
    waiting = [IndexBox((0,) * len(extents), extents)]
    while waiting:
        box = waiting.pop()
        try:
            found.append((box, walk(box)))
        except Straddles as cut:
            if inner and cut.variable in inner:
                raise Uncuttable(cut.value, f"the parts of {cut.value} lie along what is reduced") from None
            if len(found) + len(waiting) + 2 > most:
                raise Uncuttable(cut.value, f"the parts of {cut.value} cut the loop into more than {most}") from None
            waiting.extend(reversed(box.halves(cut.variable, cut.at)))
    return found


def part_at(value: Value, part: Part, index: Index, extents: tuple[int, ...]) -> tuple[Part, Index]:
    """The part that an index falls into, down to a single operand, and the index within it."""
    while isinstance(part, Concat):
        x, start = index[part.dim], 0
        low, high = x.span(extents)
        number = 0
        while low >= start + part.parts[number][0]:
            start += part.parts[number][0]
            number += 1
        length, inner = part.parts[number]
        if high >= start + length:
            raise Straddles(value, *cut_at(x, start + length, extents))
        note_within(f"part {number}", x, extents, start, length)
        index = tuple(x + -start if k == part.dim else other for k, other in enumerate(index))
        part = inner
    return part, index


def cut_at(x: Affine, border: int, extents: tuple[int, ...]) -> tuple[int, int]:
    """The variable to split and the step to split before, so that fewer values of x straddle the border."""
    low, high = x.span(extents)
    assert low < border <= high
    for k in sorted(range(len(extents)), key=lambda k: -abs(x.coefficients[k])):
        for at in _cuts(x, border, k, extents):
            if 0 < at < extents[k]:
                return k, at
    raise AssertionError(f"{x} over {extents} does not cross {border}")


def _cuts(x: Affine, border: int, k: int, extents: tuple[int, ...]) -> Iterator[int]:
    """The steps where the last one wholly on one side ends, and where the first one wholly on the other side starts."""
    c = x.coefficients[k]
    if c == 0:
        return
    low, high = Affine(x.offset, tuple(0 if j == k else f for j, f in enumerate(x.coefficients))).span(extents)
    if c > 0:
        yield -((high - border) // c)  # the first i with c*i + high >= border
        yield -((low - border) // c)
    else:
        yield (low - border) // -c + 1  # the first i with c*i + low < border
        yield (high - border) // -c + 1
