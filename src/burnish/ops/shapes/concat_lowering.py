"""Lowering of concatenation, padding, rolling and slice scatter to loops over the parts of the result.

    @concat_rule("aten.cat.default")
    def cat(tensors, dim=0):
        return Concat(dim, tuple((x.shape[dim], OperandPart(x)) for x in tensors))

    cat([a, b], 1) at [i, j]    =>    a at [i, j] where j < 4, b at [i, j - 4] elsewhere

A rule takes the operator's arguments and returns a tree. Along a dimension it has parts of given lengths. Each part is
split along another dimension, is a number, or is a view of an operand. Loops are split at the boundaries of the parts,
so no copy is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...tensors.views.view_maps import Map, Maps, Slice
from ..operator_record import NoRule, registers

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class OperandPart:
    """The view of an operand by `maps`. It has the shape of the part that it fills."""

    operand: Any
    maps: Maps = ()


@dataclass(frozen=True, slots=True)
class Concat:
    """Consecutive parts along `dim`: (length, part). The index of each part starts at 0."""

    dim: int
    parts: tuple[tuple[int, Part], ...]


Part = Concat | OperandPart | Number


@dataclass(frozen=True, slots=True)
class ConcatRule:
    """A record's rule: the result consists of the parts `rule(*args)`. Operands are converted to its dtype."""

    rule: Callable[..., Part]
    is_slow: bool = False
    """Whether eager's kernel passes over memory more than once."""


def concat_rule(*names: str, is_slow: bool = False) -> Callable[[Callable], Callable]:
    """Register the parts that a result consists of."""
    return registers(names, "rule", lambda rule: ConcatRule(rule, is_slow))


def leaves(part: Part) -> Iterator[OperandPart | Number]:
    """The parts that are not split further, in order."""
    if isinstance(part, Concat):
        for _, inner in part.parts:
            yield from leaves(inner)
    else:
        yield part


def along(dim: int, parts: Sequence[tuple[int, Part]]) -> Part:
    """Consecutive parts without the empty ones. A single part is returned as it is."""
    some = tuple(part for part in parts if part[0])
    if not some:
        raise NoRule("nothing is joined")
    return some[0][1] if len(some) == 1 else Concat(dim, some)


def boxed(x: Any, sides: Sequence[tuple[int, Sequence[tuple[int, Map | Number | None]]]], maps: Maps = ()) -> Part:
    """A tensor split along several dimensions: for each, a list of (length, content) from front to back.

    The content is a map of the tensor, None for the tensor itself, or a fill value.
    """
    if not sides:
        return OperandPart(x, maps)
    (dim, lengths), *rest = sides
    return along(
        dim,
        [
            (length, what if isinstance(what, (bool, int, float)) else boxed(x, rest, (*maps, what) if what else maps))
            for length, what in lengths
        ],
    )


def bordered(x: Any, lengths: Sequence[tuple[int, int]], border: Number) -> Part:
    """A tensor padded with `border` by (before, after) elements in each dimension. Negative lengths crop."""
    sides: list[tuple[int, list[tuple[int, Map | Number | None]]]] = []
    for dim, (before, behind) in enumerate(lengths):
        if before or behind:
            first, size = max(-before, 0), x.shape[dim] + min(before, 0) + min(behind, 0)
            if size < 0:
                raise NoRule("more is cut off than there is")
            inside = Slice(dim, first, 1, size) if size != x.shape[dim] else None
            sides.append((dim, [(max(before, 0), border), (size, inside), (max(behind, 0), border)]))
    return boxed(x, sides)


def replaced_in(x: Any, value: Part, region: Sequence[tuple[int, int]]) -> Part:
    """A tensor with one box replaced by `value`. `region` is (start, size) in each dimension."""

    def inside(dim: int, maps: Maps) -> Part:
        if dim == len(region):
            return value
        start, size = region[dim]
        if (start, size) == (0, x.shape[dim]):
            return inside(dim + 1, maps)
        end = start + size
        after = x.shape[dim] - end
        return along(
            dim,
            [
                (start, OperandPart(x, (*maps, Slice(dim, 0, 1, start)))),
                (size, inside(dim + 1, (*maps, Slice(dim, start, 1, size)))),
                (after, OperandPart(x, (*maps, Slice(dim, end, 1, after)))),
            ],
        )

    return inside(0, ())
