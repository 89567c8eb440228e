"""Simplifies chains of view maps: drops identity maps and merges adjacent maps of the same kind.

permute[1, 0] permute[1, 0]            =>    (nothing)
reshape[6] reshape[2, 3]               =>    reshape[2, 3]
expand[2, 3] of a tensor [2, 3]        =>    (nothing)
"""

from __future__ import annotations

from collections.abc import Iterable

from .view_maps import Expand, Map, Maps, Permute, Reshape, Shape, Slice


def simplified(maps: Iterable[Map], source: Shape) -> Maps:
    """An equivalent, simplified chain."""
    found: list[Map] = []
    shapes: list[Shape] = [source]
    for step in maps:
        while found:
            joined = _joined(found[-1], step)
            if joined is None:
                break
            found.pop()
            shapes.pop()
            step = joined
        if not _does_nothing(step, shapes[-1]):
            found.append(step)
            shapes.append(step.result_shape(shapes[-1]))
    return tuple(found)


def _joined(first: Map, second: Map) -> Map | None:
    """One map equivalent to `first` followed by `second`; None if there is none."""
    match first, second:
        case Reshape(), Reshape():
            return second
        case Permute(a), Permute(b):
            return Permute(tuple(a[k] for k in b))
        case Expand(), Expand():
            return second
        case Slice(), Slice() if first.dim == second.dim:
            return Slice(first.dim, first.start + second.start * first.step, first.step * second.step, second.size)
    return None


def _does_nothing(step: Map, source: Shape) -> bool:
    match step:
        case Reshape(shape) | Expand(shape):
            return shape == source
        case Permute(dims):
            return dims == tuple(range(len(dims)))
        case Slice(dim, start, stride, size):
            return start == 0 and size == source[dim] and (stride == 1 or size == 1)
    return False
