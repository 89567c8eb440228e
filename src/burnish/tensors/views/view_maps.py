"""Views as index maps: from an element of a view to the element of its source.

    Reshape(shape)                the same elements in row-major order
    Permute(dims)                 dimension k of the view is dimension dims[k] of the source
    Expand(shape)                 sizes of 1 become larger, dimensions are added in front
    Slice(dim, start, step, size) every step-th element, backwards if step is negative
    Diagonal(a, b, shift, size)   dimensions a and b become one, the last: the diagonal

Every torch view is a chain of these, except `as_strided` and views that change the dtype. A map gives the shape and
strides of the view for a source, and translates an index of the view into one of the source.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..tensor_types import TensorType, contiguous_stride
from .affine_indices import Affine, Index, constant, split, split_hint
from .index_range_conditions import note_within

Shape = tuple[int, ...]
Hints = list[tuple[int, int]] | None
"""A list to which a failing map adds the variable to split and its inner extent: see `split_hint`."""


@dataclass(frozen=True, slots=True)
class Reshape:
    shape: Shape

    def result_shape(self, source: Shape) -> Shape:
        return self.shape

    def stride(self, source: TensorType) -> Shape | None:
        return view_stride(source.shape, source.stride, self.shape)

    def source_index(self, index: Index, source: Shape, extents: Shape, hints: Hints = None) -> Index | None:
        """None if the index into the source is not affine in the loop variables."""
        if self.shape == source:
            return index
        count = len(extents)
        total = constant(0, count)
        for x, step, size in zip(index, contiguous_stride(self.shape), self.shape, strict=True):
            if size != 1:
                total = total + x * step
        found: list[Affine] = []
        steps = contiguous_stride(source)
        for k, (step, size) in enumerate(zip(steps, source, strict=True)):
            if size == 1:
                found.append(constant(0, count))
                continue
            parts = split(total, step, extents)
            if parts is None:
                hint = split_hint(total, step, extents)
                if hint is not None and hints is not None:
                    hints.append(hint)
                return None
            quotient, total = parts
            note_within("rest", total, extents, 0, step, is_divided=True)
            if k:
                if quotient.span(extents)[1] >= size:
                    return None
                note_within("row", quotient, extents, 0, size, is_divided=True)
            found.append(quotient)
        return tuple(found)

    def inverse(self, source: Shape) -> Reshape | None:
        return Reshape(source)

    def __str__(self) -> str:
        return f"reshape{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Permute:
    dims: Shape

    def result_shape(self, source: Shape) -> Shape:
        return tuple(source[d] for d in self.dims)

    def stride(self, source: TensorType) -> Shape | None:
        return tuple(source.stride[d] for d in self.dims)

    def source_index(self, index: Index, source: Shape, extents: Shape, hints: Hints = None) -> Index | None:
        found = list(index)
        for x, dim in zip(index, self.dims, strict=True):
            found[dim] = x
        return tuple(found)

    def inverse(self, source: Shape) -> Permute | None:
        back = [0] * len(self.dims)
        for k, dim in enumerate(self.dims):
            back[dim] = k
        return Permute(tuple(back))

    def __str__(self) -> str:
        return f"permute{list(self.dims)}"


@dataclass(frozen=True, slots=True)
class Expand:
    shape: Shape

    def result_shape(self, source: Shape) -> Shape:
        return self.shape

    def stride(self, source: TensorType) -> Shape | None:
        if not source.shape:
            return (0,) * len(self.shape)
        missing = len(self.shape) - source.ndim
        found: list[int] = []
        # Backwards: the stride of an added dimension is the span of the next one.
        for k in range(len(self.shape) - 1, -1, -1):
            size, stride = (
                (source.shape[k - missing], source.stride[k - missing])
                if k >= missing
                else (1, self.shape[k + 1] * found[-1])
            )
            found.append(stride if size == self.shape[k] else 0)
        return tuple(reversed(found))

    def source_index(self, index: Index, source: Shape, extents: Shape, hints: Hints = None) -> Index | None:
        missing = len(self.shape) - len(source)
        none = constant(0, len(extents))
        return tuple(none if n == 1 else x for n, x in zip(source, index[missing:], strict=True))

    def inverse(self, source: Shape) -> Reshape | None:
        """None if any size grew."""
        grew = any(n != 1 for n in self.shape[: len(self.shape) - len(source)])
        return Reshape(source) if not grew and self.shape[len(self.shape) - len(source) :] == source else None

    def __str__(self) -> str:
        return f"expand{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Slice:
    dim: int
    start: int
    step: int
    size: int

    def result_shape(self, source: Shape) -> Shape:
        return (*source[: self.dim], self.size, *source[self.dim + 1 :])

    def stride(self, source: TensorType) -> Shape | None:
        if self.step < 0:
            return None
        return tuple(s * self.step if k == self.dim else s for k, s in enumerate(source.stride))

    def source_index(self, index: Index, source: Shape, extents: Shape, hints: Hints = None) -> Index | None:
        return tuple(x * self.step + self.start if k == self.dim else x for k, x in enumerate(index))

    def inverse(self, source: Shape) -> Slice | None:
        """Exists only for a whole dimension, possibly reversed."""
        return self if self.size == source[self.dim] and abs(self.step) == 1 else None

    def __str__(self) -> str:
        return f"slice[{self.dim}: {self.start}, {self.step}, {self.size}]"


@dataclass(frozen=True, slots=True)
class Diagonal:
    a: int
    b: int
    shift: int
    size: int

    def result_shape(self, source: Shape) -> Shape:
        return (*(n for k, n in enumerate(source) if k not in (self.a, self.b)), self.size)

    def stride(self, source: TensorType) -> Shape | None:
        rest = (s for k, s in enumerate(source.stride) if k not in (self.a, self.b))
        return (*rest, source.stride[self.a] + source.stride[self.b])

    def source_index(self, index: Index, source: Shape, extents: Shape, hints: Hints = None) -> Index | None:
        rest = iter(index[:-1])
        along = index[-1]
        return tuple(
            along + max(-self.shift, 0) if k == self.a else along + max(self.shift, 0) if k == self.b else next(rest)
            for k in range(len(source))
        )

    def inverse(self, source: Shape) -> None:
        return None

    def __str__(self) -> str:
        return f"diagonal[{self.a}, {self.b}: {self.shift}, {self.size}]"


Map = Reshape | Permute | Expand | Slice | Diagonal
Maps = tuple[Map, ...]


def shapes_along(maps: Maps, source: Shape) -> list[Shape]:
    """The shape before each map, then the shape of the view."""
    shapes = [source]
    for step in maps:
        shapes.append(step.result_shape(shapes[-1]))
    return shapes


def view_type(maps: Maps, source: TensorType) -> TensorType | None:
    """The type of the view, or None if no strides can express it."""
    for step in maps:
        stride = step.stride(source)
        if stride is None:
            return None
        source = TensorType(step.result_shape(source.shape), stride, source.dtype, source.device)
    return source


def source_index(maps: Maps, index: Index, source: Shape, extents: Shape, hints: Hints = None) -> Index | None:
    """Translate an index of the view into an index of its source; None if it is not affine."""
    shapes = shapes_along(maps, source)
    found: Index | None = index
    for step, shape in zip(reversed(maps), reversed(shapes[:-1]), strict=True):
        found = step.source_index(found, shape, extents, hints)
        if found is None:
            return None
    return found


def view_offset(maps: tuple, source: TensorType) -> int:
    """The offset, in elements, of the view's first element in the source's memory."""
    shape = source.shape
    for step in maps:
        shape = step.result_shape(shape)
    if 0 in shape:
        return offset_of_nothing(maps, source)
    index = source_index(maps, tuple(constant(0, 0) for _ in shape), source.shape, ())
    assert index is not None
    return sum(x.offset * stride for x, stride in zip(index, source.stride, strict=True))


def inverse(maps: Maps, source: Shape) -> Maps | None:
    """The maps from the view back to its source; None unless the view has each source element once."""
    shapes, back = shapes_along(maps, source), []
    for step, shape in zip(reversed(maps), reversed(shapes[:-1]), strict=True):
        one = step.inverse(shape)
        if one is None:
            return None
        back.append(one)
    return tuple(back)


def view_stride(shape: Shape, stride: Shape, wanted: Shape) -> Shape | None:
    """The strides that view a tensor of `shape` and `stride` in the shape `wanted`; None if a copy is needed.

    Follows ATen's computeStride: runs of densely nested dimensions are merged and split again.
    """
    numel = 1
    for n in shape:
        numel *= n
    if numel == 0:
        return stride if shape == wanted else contiguous_stride(wanted)
    if not shape:
        return (1,) * len(wanted)
    found = [0] * len(wanted)
    at = len(wanted) - 1
    run_step, run_numel, seen_numel = stride[-1], 1, 1
    for dim in range(len(shape) - 1, -1, -1):
        run_numel *= shape[dim]
        if dim == 0 or (shape[dim - 1] != 1 and stride[dim - 1] != run_numel * run_step):
            while at >= 0 and (seen_numel < run_numel or wanted[at] == 1):
                found[at] = seen_numel * run_step
                seen_numel *= wanted[at]
                at -= 1
            if seen_numel != run_numel:
                return None
            if dim > 0:
                run_step, run_numel, seen_numel = stride[dim - 1], 1, 1
    return tuple(found) if at == -1 else None


def offset_of_nothing(maps: tuple, source: TensorType) -> int:
    """The offset that torch gives a view without elements, up to a map that no strides express."""
    offset = 0
    for step in maps:
        if isinstance(step, Slice):
            offset += step.start * source.stride[step.dim]
        elif isinstance(step, Diagonal) and step.size:
            offset += max(-step.shift, 0) * source.stride[step.a] + max(step.shift, 0) * source.stride[step.b]
        stride = step.stride(source)
        if stride is None:
            break
        source = TensorType(step.result_shape(source.shape), stride, source.dtype, source.device)
    return offset
