"""Results that are laid together from parts: joining, padding, rolling, writing into a slice.

    @joined("aten.cat.default")
    def cat(tensors, dim=0):
        return Along(dim, tuple((x.shape[dim], Shown(x)) for x in tensors))

    cat([a, b], 1) at [i, j]    =>    a at [i, j] where j < 4, b at [i, j - 4] elsewhere

A rule gets the operator's arguments and answers with a tree. Along a dimension lie parts of some length, each of which
is cut along another dimension, is a number, or shows elements of an operand. Loops are cut where the parts meet, so
that nothing is copied only to lie beside something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...tensors.view_maps import Map, Maps, Slice
from ..operator_record import NoRule, record

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class Shown:
    """What `maps` show of an operand: of the same shape as the part that it fills."""

    operand: Any
    maps: Maps = ()


@dataclass(frozen=True, slots=True)
class Along:
    """Parts one behind the other along `dim`: (length, part). Each part's index counts from its own beginning."""

    dim: int
    parts: tuple[tuple[int, Part], ...]


Part = Along | Shown | Number


@dataclass(frozen=True, slots=True)
class Joined:
    """A record's rule: the result is laid together as `rule(*args)` says. Operands are converted to its dtype."""

    rule: Callable[..., Part]
    is_slow: bool = False
    """Eager's kernel goes over memory more than once."""


def joined(*names: str, is_slow: bool = False) -> Callable[[Callable], Callable]:
    """Register how a result is laid together."""

    def register(rule: Callable) -> Callable:
        for name in names:
            record(name).rule = Joined(rule, is_slow)  # type: ignore[assignment]
        return rule

    return register


def leaves(part: Part) -> Iterator[Shown | Number]:
    """The parts that are not cut any further, in order."""
    if isinstance(part, Along):
        for _, inner in part.parts:
            yield from leaves(inner)
    else:
        yield part


def along(dim: int, parts: Sequence[tuple[int, Part]]) -> Part:
    """Parts without elements left out; a single one needs no cut."""
    some = tuple(part for part in parts if part[0])
    if not some:
        raise NoRule("nothing is joined")
    return some[0][1] if len(some) == 1 else Along(dim, some)


def boxed(x: Any, sides: Sequence[tuple[int, Sequence[tuple[int, Map | Number | None]]]], maps: Maps = ()) -> Part:
    """A tensor cut along several dimensions: for each, (length, what is shown there) from the front to the back.

    A map applies to the tensor, None takes it as it is, a number fills.
    """
    if not sides:
        return Shown(x, maps)
    (dim, lengths), *rest = sides
    return along(
        dim,
        [
            (length, what if isinstance(what, (bool, int, float)) else boxed(x, rest, (*maps, what) if what else maps))
            for length, what in lengths
        ],
    )


def bordered(x: Any, lengths: Sequence[tuple[int, int]], border: Number) -> Part:
    """A tensor with so many elements of a number before and behind each dimension. Negative: so many are cut off."""
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
    """A tensor with a box of it, (start, size) in each dimension, replaced."""

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
                (start, Shown(x, (*maps, Slice(dim, 0, 1, start)))),
                (size, inside(dim + 1, (*maps, Slice(dim, start, 1, size)))),
                (after, Shown(x, (*maps, Slice(dim, end, 1, after)))),
            ],
        )

    return inside(0, ())


__all__ = ["Along", "Joined", "Part", "Shown", "along", "bordered", "boxed", "joined", "leaves", "replaced_in"]
