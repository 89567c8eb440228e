"""Strides over memory as views of it: what `as_strided` shows of memory that is one line of elements.

    size [2, 3], stride [4, 1], offset 1    =>    slice[0: 1, 1, 8] reshape[2, 4] slice[1: 0, 1, 3]

Dimensions are cut off from the largest stride to the smallest: rows as long as the stride, of each of which a part is
shown. Where rows share elements, as sliding windows do, no chain of maps says it; windows of windows do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .tensor_types import TensorType
from .view_maps import Expand, Map, Maps, Permute, Reshape, Shape, Slice


def line_of(type: TensorType) -> Maps:
    """A dense tensor's elements in the order in which they lie."""
    return (Permute(tuple(sorted(range(type.ndim), key=lambda dim: -type.stride[dim]))), Reshape((type.numel,)))


@dataclass(frozen=True, slots=True)
class Strided:
    size: Shape
    stride: Shape
    offset: int

    @property
    def dims(self) -> list[int]:
        """Those that lead anywhere, from the largest stride to the smallest."""
        return sorted(
            [k for k, (n, step) in enumerate(zip(self.size, self.stride, strict=True)) if n != 1 and step],
            key=lambda k: -self.stride[k],
        )

    def span(self, dims: Sequence[int]) -> int:
        """From the first element that is shown to the last one."""
        return 1 + sum((self.size[k] - 1) * self.stride[k] for k in dims)

    def fits(self, length: int) -> bool:
        return 0 not in self.size and self.offset + self.span(self.dims) <= length

    def maps(self, length: int) -> Maps | None:
        """Of a line of so many elements; None where there are no such maps."""
        if not self.fits(length):
            return None
        dims, start, made = self.dims, self.offset, []
        for at, dim in enumerate(dims):
            n, step, inner = self.size[dim], self.stride[dim], self.span(dims[at + 1 :])
            if at == len(dims) - 1:
                made.append(Slice(at, start, step, n))
                break
            # Rows may begin before what is shown of them: the last one must not reach beyond the end.
            column = max(0, start + n * step - length)
            if column > min(start, step - inner):
                return None
            made += [Slice(at, start - column, 1, n * step), Reshape((*(self.size[k] for k in dims[: at + 1]), step))]
            start, length = column, step
        return (*(made or [Slice(0, start, 1, 1)]), *self.in_place(dims))

    def windows(self) -> tuple[Slice, list[tuple[int, int]], Maps]:
        """What to cut out of the line; the windows to take along the last dimension of that, and along theirs, as
        (length, step); and what shows the last ones as they should be."""
        dims = self.dims
        cut, last = Slice(0, self.offset, 1, self.span(dims)), len(dims) - 1
        windows = [(self.span(dims[at + 1 :]), self.stride[dim]) for at, dim in enumerate(dims[:last])]
        return cut, windows, (Slice(last, 0, self.stride[dims[last]], self.size[dims[last]]), *self.in_place(dims))

    def in_place(self, dims: Sequence[int]) -> list[Map]:
        """From the dimensions that lead anywhere to all of them, in their own order."""
        rest = [k for k in range(len(self.size)) if k not in dims]
        order = [*dims, *rest]
        return [
            Reshape((*(self.size[k] for k in dims), *(1 for _ in rest))),
            Permute(tuple(order.index(k) for k in range(len(order)))),
            Expand(self.size),
        ]
