"""Turns `as_strided` over flat memory into a chain of view maps, or into sliding windows.

    size [2, 3], stride [4, 1], offset 1    =>    slice[0: 1, 1, 8] reshape[2, 4] slice[1: 0, 1, 3]

Dimensions are processed from the largest stride to the smallest. Each step reshapes memory into rows as long as the
stride and slices each row. No chain of maps expresses rows that overlap, as sliding windows do; nested windows do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..tensor_types import TensorType
from .view_maps import Expand, Map, Maps, Permute, Reshape, Shape, Slice


def line_of(type: TensorType) -> Maps:
    """The maps that flatten a dense tensor in memory order."""
    return (Permute(tuple(sorted(range(type.ndim), key=lambda dim: -type.stride[dim]))), Reshape((type.numel,)))


@dataclass(frozen=True, slots=True)
class Strided:
    size: Shape
    stride: Shape
    offset: int

    @property
    def dims(self) -> list[int]:
        """Dimensions with a size above 1 and a nonzero stride, by descending stride."""
        return sorted(
            [k for k, (n, step) in enumerate(zip(self.size, self.stride, strict=True)) if n != 1 and step],
            key=lambda k: -self.stride[k],
        )

    def span(self, dims: Sequence[int]) -> int:
        """The number of elements in memory from the first to the last one in the view."""
        return 1 + sum((self.size[k] - 1) * self.stride[k] for k in dims)

    def fits(self, length: int) -> bool:
        return 0 not in self.size and self.offset + self.span(self.dims) <= length

    def maps(self, length: int) -> Maps | None:
        """The maps that produce this view from a vector of `length` elements; None if none do."""
        if not self.fits(length):
            return None
        dims, start, made = self.dims, self.offset, []
        for at, dim in enumerate(dims):
            n, step, inner = self.size[dim], self.stride[dim], self.span(dims[at + 1 :])
            if at == len(dims) - 1:
                made.append(Slice(at, start, step, n))
                break
            # A row may begin before its first element in the view, so that the last row ends in memory.
            column = max(0, start + n * step - length)
            if column > min(start, step - inner):
                return None
            made += [Slice(at, start - column, 1, n * step), Reshape((*(self.size[k] for k in dims[: at + 1]), step))]
            start, length = column, step
        return (*(made or [Slice(0, start, 1, 1)]), *self.restore_dimension_order(dims))

    def windows(self) -> tuple[Slice, list[tuple[int, int]], Maps]:
        """The slice of the vector; the nested windows as (length, step), each along the last dimension so far; the maps
        from the last windows to the view."""
        dims = self.dims
        cut, last = Slice(0, self.offset, 1, self.span(dims)), len(dims) - 1
        windows = [(self.span(dims[at + 1 :]), self.stride[dim]) for at, dim in enumerate(dims[:last])]
        return (
            cut,
            windows,
            (Slice(last, 0, self.stride[dims[last]], self.size[dims[last]]), *self.restore_dimension_order(dims)),
        )

    def restore_dimension_order(self, dims: Sequence[int]) -> list[Map]:
        """The maps from `dims` alone to all dimensions in their own order."""
        rest = [k for k in range(len(self.size)) if k not in dims]
        order = [*dims, *rest]
        return [
            Reshape((*(self.size[k] for k in dims), *(1 for _ in rest))),
            Permute(tuple(order.index(k) for k in range(len(order)))),
            Expand(self.size),
        ]
