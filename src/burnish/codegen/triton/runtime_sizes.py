"""Symbolic sizes as parameters of Triton kernels, passed at run time.

    rows = Size(768*s0, parameters)           a number of a box, known as a formula of the sizes
    f"x < {rows}"                       "x < n0": it becomes the kernel's parameter n0
    f"x // {rows * 4}"                  "x // n1": products are computed before the kernel starts

A `TritonSize` takes the place of a number in a box or an access. `SizeParameters` records the parameters that were
printed: each is a formula, or something else that is known when the kernel is launched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import add

from ...ops.scalar_ir import Access, walk
from ...tensors.fit_size_formulas import Formula, Point
from ..loops.coalesce_loops import LoopNest, accesses, expressions


@dataclass(frozen=True, slots=True)
class ProgramsOf:
    """The number of programs of the first `loops` loops of a kernel together."""

    loops: int


@dataclass(eq=False, slots=True)
class SizeParameters:
    """The parameters of a kernel, in the order in which they were first printed."""

    entries: list[Formula | ProgramsOf] = field(default_factory=list)

    def name(self, what: Formula | ProgramsOf) -> str:
        if what not in self.entries:
            self.entries.append(what)
        return f"n{self.entries.index(what)}"


@dataclass(frozen=True, slots=True)
class TritonSize:
    formula: Formula
    parameters: SizeParameters

    def __mul__(self, other: int | TritonSize) -> int | TritonSize:
        made = times(self.formula, other.formula if isinstance(other, TritonSize) else other)
        return made if isinstance(made, int) else TritonSize(made, self.parameters)

    __rmul__ = __mul__

    def __str__(self) -> str:
        return self.parameters.name(self.formula)


def is_multiple(count: int | TritonSize, unit: int) -> bool:
    """Whether the count is a multiple of `unit` for all sizes."""
    if isinstance(count, TritonSize):
        return count.formula.divisor % unit == 0
    return count % unit == 0


def times(a: Formula, b: Formula | int) -> Formula | int:
    terms: dict[Point, int] = {}
    for other, others in b.terms if isinstance(b, Formula) else ((b, (0,) * len(a.names)),):
        for factor, powers in a.terms:
            at = tuple(map(add, powers, others))
            terms[at] = terms.get(at, 0) + factor * other
    return formula_of(a, terms)


def formula_of(like: Formula, terms: dict[Point, int]) -> Formula | int:
    """Of the same symbols."""
    found = tuple((factor, powers) for powers, factor in terms.items() if factor)
    if not any(any(powers) for _, powers in found):
        return sum(factor for factor, _ in found)
    return replace(like, terms=found)


def at(count: int | TritonSize | Formula, point: Point) -> int:
    if isinstance(count, TritonSize):
        count = count.formula
    return count if isinstance(count, int) else count.at(point)


def reaches(box: LoopNest) -> set[Formula | int]:
    """Upper bounds of all numbers computed from the box's variables: the number of rows, the elements of a row, how far
    each access goes, and the sizes used in expressions."""
    counts = [math.prod(box.extents[: box.rows]), math.prod(box.extents[box.rows :])]
    counts += [x.payload for x in walk(*expressions(box.stages)) if x.op == "size"]
    return {most_of([count]) for count in counts} | {reach(access, box) for access in accesses(box.stages)}


def reach(access: Access, box: LoopNest) -> Formula | int:
    return most_of(
        [
            access.offset,
            *access.indirect,
            *(stride * extent for stride, extent in zip(access.strides, box.extents, strict=True)),
        ]
    )


def most_of(parts: Iterable[int | TritonSize]) -> Formula | int:
    """An upper bound for the sum of their magnitudes. No size is negative."""
    terms: dict[Point, int] = {}
    like: Formula | None = None
    whole = 0
    for part in parts:
        if isinstance(part, TritonSize):
            like = part.formula
            for factor, powers in part.formula.terms:
                terms[powers] = terms.get(powers, 0) + abs(factor)
        else:
            whole += abs(part)
    if like is None:
        return whole
    none = (0,) * len(like.names)
    terms[none] = terms.get(none, 0) + whole
    return formula_of(like, terms)
