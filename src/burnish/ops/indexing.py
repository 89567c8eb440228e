"""Gathering, scattering, joining, padding: the types of their results.

    index_select(f32[4, 3], 0, i64[2])                 f32[2, 3]
    index(f32[4, 5, 6], [None, i64[2, 1], i64[3]])     f32[4, 2, 3]{1, 12, 4}
    cat([f32[2, 3], f32[4, 3]])                        f32[6, 3]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..tensors.promotion import common_dtype
from ..tensors.strides import elementwise_stride
from ..tensors.types import TensorType
from ..tensors.views import Expand, view_stride
from .memory_format import CONTIGUOUS, copied, formatted, suggested
from .record import NoRule, broadcast_shape, fresh, shape, wrapped_dim

Indices = Sequence[TensorType | None]


# -- reading at indices ------------------------------------------------------------------------------------------------

@shape("aten.embedding.default")
def embedding(weight: TensorType, indices: TensorType, *_: object) -> TensorType:
    return fresh(weight, (*indices.shape, *weight.shape[1:]))


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


@shape("aten.roll.default")
def roll(x: TensorType, shifts: Sequence[int], dims: Sequence[int] = ()) -> TensorType:
    """Without dimensions the elements are rolled in row-major order. Otherwise parts are joined, as `cat` would."""
    if not dims:
        return fresh(x, x.shape)
    return formatted(x, x.shape, suggested(x)) if x.numel else copied(x)
