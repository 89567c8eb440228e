"""Gathering, scattering, joining, padding: the types of their results.

    index_select(f32[4, 3], 0, i64[2])                 f32[2, 3]
    index(f32[4, 5, 6], [None, i64[2, 1], i64[3]])     f32[4, 2, 3]{1, 12, 4}
    cat([f32[2, 3], f32[4, 3]])                        f32[6, 3]

What is laid together from parts has a second record, for the loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..tensors.promotion import common_dtype
from ..tensors.strides import elementwise_stride
from ..tensors.types import NAMES, TensorType
from ..tensors.views import Expand, Map, Reshape, Slice, view_stride
from .gathered import Picked, Picks, gathered
from .located import Place, located
from .memory_format import CONTIGUOUS, copied, formatted, suggested
from .parts import Part, Shown, along, bordered, boxed, joined, replaced_in
from .record import NoRule, broadcast_shape, fresh, shape, wrapped_dim
from .scalar import Scalar, const, select

Indices = Sequence[TensorType | None]


# -- reading at indices ------------------------------------------------------------------------------------------------

@shape("aten.embedding.default")
def embedding(weight: TensorType, indices: TensorType, *_: object) -> TensorType:
    return fresh(weight, (*indices.shape, *weight.shape[1:]))


@gathered("aten.embedding.default")
def embedding_picks(weight: Any, indices: Any, *_: object) -> Picks:
    n = indices.ndim
    return weight, (Picked(indices, tuple(range(n))), *range(n, n + weight.ndim - 1))


@gathered("aten.index_select.default")
def index_select_picks(x: Any, dim: int, index: Any) -> Picks:
    dim = wrapped_dim(dim, x.ndim)
    if not x.ndim:
        raise NoRule("a tensor without dimensions")
    return x, tuple(Picked(index, (dim,) * index.ndim) if k == dim else k for k in range(x.ndim))


@gathered("aten.gather.default")
def gather_picks(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Picks:
    dim = wrapped_dim(dim, x.ndim)
    if not x.ndim or not index.ndim:
        raise NoRule("a tensor without dimensions")
    return x, tuple(Picked(index, tuple(range(index.ndim))) if k == dim else k for k in range(x.ndim))


@gathered("aten.index.Tensor", is_slow=True)
def index_picks(x: Any, indices: Sequence[Any]) -> Picks:
    """By a single tensor of whole numbers."""
    places = [k for k, one in enumerate(indices) if one is not None]
    if len(places) != 1:
        raise NoRule("several indices")
    at, one = places[0], indices[places[0]]
    own = tuple(range(at, at + one.ndim))
    return x, tuple(Picked(one, own, wraps=True) if k == at else k if k < at else k + one.ndim - 1
                    for k in range(x.ndim))


@shape("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    grad_output: TensorType, indices: TensorType, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> TensorType:
    return fresh(grad_output, (num_weights, grad_output.shape[-1]))


@shape("aten.index_select.default")
def index_select(x: TensorType, dim: int, index: TensorType) -> TensorType:
    dim = wrapped_dim(dim, x.ndim)
    return fresh(x, [index.numel if k == dim else n for k, n in enumerate(x.shape)])


@shape("aten.gather.default")
def gather(x: TensorType, dim: int, index: TensorType, *, sparse_grad: bool = False) -> TensorType:
    return fresh(x, index.shape)


@shape("aten.take.default")
def take(x: TensorType, index: TensorType) -> TensorType:
    return fresh(x, index.shape)


@shape("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(x: TensorType, indices: Indices) -> TensorType:
    """The indexed dimensions make place for the indices' common shape: where they stand, or in front if apart."""
    if any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in indices):
        raise NoRule("a mask: the result's shape depends on its data")
    places = [k for k, one in enumerate(indices) if one is not None]
    if not places:
        raise NoRule("no index")
    chosen = broadcast_shape([indices[k].shape for k in places])
    apart = places != list(range(places[0], places[-1] + 1))
    order = [*places, *(k for k in range(x.ndim) if k not in places)] if apart else list(range(x.ndim))
    front = 0 if apart else places[0]
    sizes = [x.shape[k] for k in order]
    steps = [x.stride[k] for k in order]
    before, after = sizes[:front], sizes[front + len(places):]
    result = (*before, *chosen, *after)
    if 0 not in chosen and any(x.shape[k] == 0 for k in places):
        raise NoRule("an index into an empty dimension")
    # As TensorIterator sees them: the source does not move along the indices, the indices not along the rest.
    source = TensorType(
        result, (*steps[:front], *(0,) * len(chosen), *steps[front + len(places):]), x.dtype, x.device)
    beside = (*(1,) * front, *chosen, *(1,) * len(after))
    read = []
    for k in places:
        one = indices[k]
        stride = one.stride if one.shape == chosen else Expand(chosen).stride(one)
        read.append(TensorType(beside, view_stride(chosen, stride, beside), one.dtype, one.device))
    return TensorType(result, elementwise_stride(result, [source, *read]), x.dtype, x.device)


@shape("aten.bucketize.Tensor")
def bucketize(x: TensorType, boundaries: TensorType, *, out_int32: bool = False, right: bool = False) -> TensorType:
    return fresh(x, x.shape, torch.int32 if out_int32 else torch.int64)


@shape("aten.searchsorted.Tensor")
def searchsorted(
    sorted_sequence: TensorType, x: TensorType, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: TensorType | None = None,
) -> TensorType:
    return bucketize(x, sorted_sequence, out_int32=out_int32)


@shape("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar")
def isin(elements: TensorType, test_elements: object, **_: object) -> TensorType:
    return fresh(elements, elements.shape, torch.bool)


@shape("aten.masked_select.default", "aten.nonzero.default", "aten._unique2.default", "aten.unique_dim.default",
       "aten.unique_consecutive.default", "aten.bincount.default", "aten.repeat_interleave.Tensor",
       "aten.nonzero_numpy.default")
def of_data(*_: object, **__: object) -> TensorType:
    raise NoRule("the result's shape depends on data")


# -- writing at indices ------------------------------------------------------------------------------------------------

@shape("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(x: TensorType, indices: Indices, values: TensorType, accumulate: bool = False) -> TensorType:
    return copied(x)


@shape("aten.put.default")
def put(x: TensorType, index: TensorType, source: TensorType, accumulate: bool = False) -> TensorType:
    return copied(x)


@shape("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(x: TensorType, dim: int, index: TensorType, value: object) -> TensorType:
    return copied(x)


@shape("aten.masked_scatter.default")
def masked_scatter(x: TensorType, mask: TensorType, source: TensorType) -> TensorType:
    return fresh(x, broadcast_shape([x.shape, mask.shape]))


@shape("aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce", "aten.scatter.value_reduce",
       "aten.scatter_add.default", "aten.scatter_reduce.two", "aten.index_add.default", "aten.index_copy.default",
       "aten.index_reduce.default")
def scatter(x: TensorType, *_: object, **__: object) -> TensorType:
    return fresh(x, x.shape)


@shape("aten.slice_scatter.default", "aten.select_scatter.default", "aten.diagonal_scatter.default")
def view_scatter(x: TensorType, *_: object, **__: object) -> TensorType:
    """A copy with the very strides, gaps too, unless elements share memory."""
    overlaps = any(stride == 0 and size > 1 for stride, size in zip(x.stride, x.shape, strict=True))
    return copied(x) if overlaps else x


@joined("aten.slice_scatter.default")
def slice_scatter_parts(
    x: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Part:
    dim = wrapped_dim(dim, x.ndim)
    first, size = sliced(x.shape[dim], start, end, step)
    if src.shape != (*x.shape[:dim], size, *x.shape[dim + 1:]) or not size:
        raise NoRule("nothing, or another shape, is written")
    return replaced_in(x, Shown(src), whole(x.shape, dim, first, size))


@joined("aten.select_scatter.default")
def select_scatter_parts(x: Any, src: Any, dim: int, index: int) -> Part:
    dim = wrapped_dim(dim, x.ndim)
    one = (*x.shape[:dim], 1, *x.shape[dim + 1:])
    if src.ndim != x.ndim - 1 or not -x.shape[dim] <= index < x.shape[dim]:
        raise NoRule("another shape is written")
    return replaced_in(x, Shown(src, (Reshape(one),)), whole(x.shape, dim, index % x.shape[dim], 1))


@joined("put")
def put_parts(x: Any, value: Any, maps: Sequence[Map]) -> Part:
    """Where the maps show a box of x."""
    region = [(0, n) for n in x.shape]
    shown = tuple(x.shape)
    for step in maps:
        if isinstance(step, Slice) and step.step == 1 and len(shown) == x.ndim:
            region[step.dim] = (region[step.dim][0] + step.start, step.size)
        elif not isinstance(step, Reshape) or without_ones(step.shape) != without_ones(shown):
            raise NoRule("what is written is no box")
        shown = step.result_shape(shown)
    box = tuple(size for _, size in region)
    if without_ones(box) != without_ones(shown):
        raise NoRule("what is written is no box")
    return replaced_in(x, Shown(value, (Reshape(box),)), region)


def without_ones(sizes: Sequence[int]) -> list[int]:
    return [n for n in sizes if n != 1]


def sliced(size: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """Where a slice begins, and how many elements it has. Only of neighbours."""
    if step != 1:
        raise NoRule("a slice in steps")
    first, last, _ = slice(start, end).indices(size)
    return first, max(last - first, 0)


def whole(shape: Sequence[int], dim: int, start: int, size: int) -> list[tuple[int, int]]:
    """A box of a tensor that is cut along one dimension."""
    return [(start, size) if k == dim else (0, n) for k, n in enumerate(shape)]


@joined("aten.slice_backward.default")
def slice_backward_parts(grad: Any, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Part:
    dim = wrapped_dim(dim, len(input_sizes))
    first, size = sliced(input_sizes[dim], start, end, step)
    return along(dim, [(first, 0), (size, Shown(grad)), (input_sizes[dim] - first - size, 0)])


@joined("aten.select_backward.default")
def select_backward_parts(grad: Any, input_sizes: Sequence[int], dim: int, index: int) -> Part:
    dim = wrapped_dim(dim, len(input_sizes))
    at = index % input_sizes[dim]
    one = (*input_sizes[:dim], 1, *input_sizes[dim + 1:])
    return along(dim, [(at, 0), (1, Shown(grad, (Reshape(one),))), (input_sizes[dim] - at - 1, 0)])


@shape("aten.slice_backward.default", "aten.select_backward.default", "aten.diagonal_backward.default",
       "aten.unfold_backward.default")
def view_backward(grad_output: TensorType, input_sizes: Sequence[int], *_: object) -> TensorType:
    return fresh(grad_output, input_sizes)


# -- joining and padding -----------------------------------------------------------------------------------------------

@shape("aten.cat.default")
def cat(tensors: Sequence[TensorType], dim: int = 0) -> TensorType:
    """Vectors without elements are left out, whatever the others' rank: an old habit of torch's."""
    parts = [x for x in tensors if x.shape != (0,)]
    dtype = common_dtype(tensors)
    if not parts:
        return fresh(tensors[0], (0,), dtype)
    first = parts[0]
    dim = wrapped_dim(dim, first.ndim)
    if any(x.ndim != first.ndim or x.shape[:dim] != first.shape[:dim] or x.shape[dim + 1:] != first.shape[dim + 1:]
           for x in parts):
        raise NoRule(f"cat of {tensors} along {dim}")
    sizes = (*first.shape[:dim], sum(x.shape[dim] for x in parts), *first.shape[dim + 1:])
    formats = {suggested(x) for x in tensors}
    return formatted(first, sizes, formats.pop() if len(formats) == 1 else CONTIGUOUS, dtype)


@joined("aten.cat.default")
def cat_parts(tensors: Sequence[Any], dim: int = 0) -> Part:
    some = [x for x in tensors if x.shape != (0,)]
    if not some:
        raise NoRule("nothing is joined")
    dim = wrapped_dim(dim, some[0].ndim)
    return along(dim, [(x.shape[dim], Shown(x)) for x in some])


@joined("aten.stack.default")
def stack_parts(tensors: Sequence[Any], dim: int = 0) -> Part:
    dim = wrapped_dim(dim, tensors[0].ndim + 1)
    return along(dim, [(1, Shown(x, (Reshape((*x.shape[:dim], 1, *x.shape[dim:])),))) for x in tensors])


@shape("aten.block_diag.default")
def block_diag(tensors: Sequence[TensorType]) -> TensorType:
    sizes = [(*(1,) * (2 - x.ndim), *x.shape) for x in tensors]
    return fresh(tensors[0], (sum(rows for rows, _ in sizes), sum(columns for _, columns in sizes)),
                 common_dtype([fresh(x, (1,)) for x in tensors]))


@shape("aten.stack.default")
def stack(tensors: Sequence[TensorType], dim: int = 0) -> TensorType:
    first = tensors[0]
    dim = wrapped_dim(dim, first.ndim + 1)
    if any(x.shape != first.shape for x in tensors):
        raise NoRule(f"stack of {tensors}")
    if first.ndim in (4, 5) and not all(x.is_contiguous for x in tensors):
        raise NoRule("of tensors that are channels last eager stacks some so too")
    return fresh(first, (*first.shape[:dim], len(tensors), *first.shape[dim:]), common_dtype(tensors))


@shape("aten.constant_pad_nd.default")
def constant_pad_nd(x: TensorType, pad: Sequence[int], value: object = 0) -> TensorType:
    sizes = list(x.shape)
    for k in range(len(pad) // 2):
        sizes[-1 - k] += pad[2 * k] + pad[2 * k + 1]
    if min(sizes, default=0) < 0:
        raise NoRule(f"padding {list(pad)} of {x}")
    if all(n <= 0 for n in pad):
        return copied(x.__class__(tuple(sizes), x.stride, x.dtype, x.device))
    return formatted(x, sizes, suggested(x))


@joined("aten.constant_pad_nd.default")
def constant_pad_parts(x: Any, pad: Sequence[int], value: bool | int | float = 0) -> Part:
    if x.dtype.is_complex or not x.dtype.is_floating_point and const(value, NAMES[x.dtype]).payload != value:
        raise NoRule(f"a border of {value}")
    lengths = [(0, 0)] * x.ndim
    for k in range(len(pad) // 2):
        lengths[-1 - k] = (pad[2 * k], pad[2 * k + 1])
    return bordered(x, lengths, value)


@joined("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflection_pad_parts(x: Any, padding: Sequence[int]) -> Part:
    return edges(x, padding, lambda dim, n: Slice(dim, n, -1, n),
                 lambda dim, n: Slice(dim, x.shape[dim] - 2, -1, n), reach=1)


@joined("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def replication_pad_parts(x: Any, padding: Sequence[int]) -> Part:
    return edges(x, padding, lambda dim, n: Slice(dim, 0, 0, n), lambda dim, n: Slice(dim, x.shape[dim] - 1, 0, n))


def edges(x: Any, padding: Sequence[int], before: Any, behind: Any, reach: int = 0) -> Part:
    """A tensor whose edges are continued: each dimension between what the two functions show of it."""
    sides: list[tuple[int, list[tuple[int, Map | None]]]] = []
    for k in range(len(padding) // 2):
        dim, (left, right) = x.ndim - 1 - k, padding[2 * k:2 * k + 2]
        if min(left, right) < 0 or reach and max(left, right) >= x.shape[dim]:
            raise NoRule(f"padding {list(padding)} of {list(x.shape)}")
        sides.append((dim, [(left, before(dim, left)), (x.shape[dim], None), (right, behind(dim, right))]))
    return boxed(x, sides)


@shape("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default",
       "aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def edge_pad(x: TensorType, padding: Sequence[int]) -> TensorType:
    sizes = list(x.shape)
    for k in range(len(padding) // 2):
        sizes[-1 - k] += padding[2 * k] + padding[2 * k + 1]
    return formatted(x, sizes, suggested(x) if x.ndim == 4 else CONTIGUOUS)


@shape("aten.reflection_pad1d_backward.default", "aten.reflection_pad2d_backward.default",
       "aten.reflection_pad3d_backward.default", "aten.replication_pad1d_backward.default",
       "aten.replication_pad2d_backward.default", "aten.replication_pad3d_backward.default")
def edge_pad_backward(grad_output: TensorType, x: TensorType, padding: Sequence[int]) -> TensorType:
    return formatted(x, x.shape, suggested(x) if x.ndim == 4 else CONTIGUOUS)


@shape("aten.diag_embed.default")
def diag_embed(x: TensorType, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorType:
    sizes = list(x.shape[:-1])
    for dim in sorted(wrapped_dim(d, x.ndim + 1) for d in (dim1, dim2)):
        sizes.insert(dim, x.shape[-1] + abs(offset))
    return fresh(x, sizes)


# -- rearranging -------------------------------------------------------------------------------------------------------

@shape("aten.tril.default", "aten.triu.default")
def triangle(x: TensorType, diagonal: int = 0) -> TensorType:
    return fresh(x, x.shape)


@located("aten.tril.default", reads=True)
def tril_at(at: Place, x: Scalar, diagonal: int = 0) -> Scalar:
    return select(at.index[-1] - at.index[-2] <= diagonal, x, const(0, at.dtype))


@located("aten.triu.default", reads=True)
def triu_at(at: Place, x: Scalar, diagonal: int = 0) -> Scalar:
    return select(at.index[-1] - at.index[-2] < diagonal, const(0, at.dtype), x)


@shape("aten.roll.default")
def roll(x: TensorType, shifts: Sequence[int], dims: Sequence[int] = ()) -> TensorType:
    """Without dimensions the elements are rolled in row-major order. Otherwise two parts are joined along each, one of
    which may be empty, as `cat` would."""
    if not dims:
        return fresh(x, x.shape)
    if not x.numel:
        return copied(x)
    for shift, dim in zip(shifts, dims, strict=True):
        dim = wrapped_dim(dim, x.ndim)
        first = -shift % x.shape[dim]
        parts = [replace(x, shape=(*x.shape[:dim], n, *x.shape[dim + 1:])) for n in (x.shape[dim] - first, first)]
        formats = {suggested(part) for part in parts}
        x = formatted(x, x.shape, formats.pop() if len(formats) == 1 else CONTIGUOUS)
    return x


@joined("aten.roll.default", is_slow=True)
def roll_parts(x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Part:
    over = [wrapped_dim(dim, x.ndim) for dim in dims]
    if not over or len(over) != len(shifts) or len(set(over)) != len(over):
        raise NoRule("rolled as one row, or a dimension twice")
    sides: list[tuple[int, list[tuple[int, Map | None]]]] = []
    for dim, shift in zip(over, shifts, strict=True):
        n = x.shape[dim]
        if shift % n:
            shift %= n
            sides.append((dim, [(shift, Slice(dim, n - shift, 1, shift)), (n - shift, Slice(dim, 0, 1, n - shift))]))
    return boxed(x, sides)
