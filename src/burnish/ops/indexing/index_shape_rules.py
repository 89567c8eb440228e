"""Shape rules and gather rules of indexing operators (index, gather, scatter, index_put).

    index_select(f32[4, 3], 0, i64[2])                 f32[2, 3]
    index(f32[4, 5, 6], [None, i64[2, 1], i64[3]])     f32[4, 2, 3]{1, 12, 4}

Gathers have a second rule, for loops (`gather_lowering`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...tensors.eager_strides import elementwise_stride
from ...tensors.tensor_types import TensorType
from ...tensors.views.view_maps import Expand, view_stride
from ..memory_format import copied
from ..operator_record import NoRule, broadcast_shape, call_shape, fresh, shape, wrapped_dim
from .gather_lowering import Gather, IndirectIndex, gather_rule

Indices = Sequence[TensorType | None]


# -- reading at indices ------------------------------------------------------------------------------------------------


call_shape("aten.embedding.default")(lambda a: fresh(a.weight, (*a.indices.shape, *a.weight.shape[1:])))


@gather_rule("aten.embedding.default")
def embedding_picks(weight: Any, indices: Any, *_: object) -> Gather:
    n = indices.ndim
    return weight, (IndirectIndex(indices, tuple(range(n))), *range(n, n + weight.ndim - 1))


@gather_rule("aten.index_select.default")
def index_select_picks(x: Any, dim: int, index: Any) -> Gather:
    dim = wrapped_dim(dim, x.ndim)
    if not x.ndim:
        raise NoRule("a tensor without dimensions")
    return x, tuple(IndirectIndex(index, (dim,) * index.ndim) if k == dim else k for k in range(x.ndim))


@gather_rule("aten.gather.default")
def gather_picks(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Gather:
    dim = wrapped_dim(dim, x.ndim)
    if not x.ndim or not index.ndim:
        raise NoRule("a tensor without dimensions")
    return x, tuple(IndirectIndex(index, tuple(range(index.ndim))) if k == dim else k for k in range(x.ndim))


@gather_rule("aten.index.Tensor", is_slow=True)
def index_picks(x: Any, indices: Sequence[Any]) -> Gather:
    """Covers a single index tensor of integers."""
    places = [k for k, one in enumerate(indices) if one is not None]
    if len(places) != 1:
        raise NoRule("several indices")
    at, one = places[0], indices[places[0]]
    own = tuple(range(at, at + one.ndim))
    return x, tuple(
        IndirectIndex(one, own, wraps=True) if k == at else k if k < at else k + one.ndim - 1 for k in range(x.ndim)
    )


call_shape("aten.embedding_dense_backward.default")(
    lambda a: fresh(a.grad_output, (a.num_weights, a.grad_output.shape[-1]))
)


@call_shape("aten._embedding_bag_backward.default")
def embedding_bag_backward(a: Any) -> TensorType:
    """Sums have no `maximum_indices` and need no `offset2bag`: both are empty, and its kernel cannot be asked then."""
    if a.sparse:
        raise NoRule("a sparse gradient")
    return fresh(a.grad, (a.num_weights, a.grad.shape[1]))


@shape("aten.index_select.default")
def index_select(x: TensorType, dim: int, index: TensorType) -> TensorType:
    dim = wrapped_dim(dim, x.ndim)
    return fresh(x, [index.numel if k == dim else n for k, n in enumerate(x.shape)])


call_shape("aten.gather.default")(lambda a: fresh(a.self, a.index.shape))
call_shape("aten.take.default")(lambda a: fresh(a.self, a.index.shape))


@shape("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(x: TensorType, indices: Indices) -> TensorType:
    """The indices' common shape replaces the indexed dimensions, or comes first if these are not adjacent."""
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
    before, after = sizes[:front], sizes[front + len(places) :]
    result = (*before, *chosen, *after)
    if 0 not in chosen and any(x.shape[k] == 0 for k in places):
        raise NoRule("an index into an empty dimension")
    # As in TensorIterator: the source has stride 0 along indices, which have size 1 along the rest.
    source = TensorType(result, (*steps[:front], *(0,) * len(chosen), *steps[front + len(places) :]), x.dtype, x.device)
    beside = (*(1,) * front, *chosen, *(1,) * len(after))
    read = []
    for k in places:
        one = indices[k]
        stride = one.stride if one.shape == chosen else Expand(chosen).stride(one)
        read.append(TensorType(beside, view_stride(chosen, stride, beside), one.dtype, one.device))
    return TensorType(result, elementwise_stride(result, [source, *read]), x.dtype, x.device)


call_shape("aten.bucketize.Tensor", "aten.searchsorted.Tensor")(
    lambda a: fresh(a.self, a.self.shape, torch.int32 if a.out_int32 else torch.int64)
)
call_shape("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar")(
    lambda a: fresh(a.elements, a.elements.shape, torch.bool)
)


@shape(
    "aten.masked_select.default",
    "aten.nonzero.default",
    "aten._unique2.default",
    "aten.unique_dim.default",
    "aten.unique_consecutive.default",
    "aten.bincount.default",
    "aten.nonzero_numpy.default",
)
def of_data(*_: object, **__: object) -> TensorType:
    raise NoRule("the result's shape depends on data")


@shape("aten.repeat_interleave.Tensor")
def repeated_places(repeats: TensorType, *, output_size: int | None = None) -> TensorType:
    if output_size is None:
        return of_data()
    return fresh(repeats, (output_size,))


# -- writing at indices ------------------------------------------------------------------------------------------------


call_shape(
    "aten.index_put.default",
    "aten._unsafe_index_put.default",
    "aten.put.default",
    "aten.index_fill.int_Scalar",
    "aten.index_fill.int_Tensor",
)(lambda a: copied(a.self))
call_shape("aten.masked_scatter.default")(lambda a: fresh(a.self, broadcast_shape([a.self.shape, a.mask.shape])))


SCATTERS = """
    aten.scatter.src aten.scatter.value aten.scatter.reduce aten.scatter.value_reduce aten.scatter_add.default
    aten.scatter_reduce.two aten.index_add.default aten.index_copy.default aten.index_reduce.default
""".split()
"""They write along one dimension, at the places that an index has."""


call_shape(*SCATTERS)(lambda a: fresh(a.self, a.self.shape))


def view_scatter(x: TensorType, *_: object, **__: object) -> TensorType:
    """A copy with the same strides, including gaps, unless elements overlap in memory."""
    overlaps = any(stride == 0 and size > 1 for stride, size in zip(x.stride, x.shape, strict=True))
    return copied(x) if overlaps else x


@shape("aten.diagonal_scatter.default")
def diagonal_scatter(x: TensorType, src: TensorType, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorType:
    rows, columns = wrapped_dim(dim1, x.ndim), wrapped_dim(dim2, x.ndim)
    if not x.ndim or rows == columns or not {rows, columns} <= {*range(x.ndim)}:
        raise NoRule(f"a diagonal of {x} along {dim1} and {dim2}")
    length = min(x.shape[rows] + min(offset, 0), x.shape[columns] - max(offset, 0))
    if src.shape != (*(size for k, size in enumerate(x.shape) if k not in (rows, columns)), max(length, 0)):
        raise NoRule(f"{src} into diagonal {offset} of {x}")
    return view_scatter(x)


@shape("aten.select_scatter.default")
def select_scatter(x: TensorType, src: TensorType, dim: int, index: int) -> TensorType:
    dim = wrapped_dim(dim, x.ndim)
    if not x.ndim or not -x.shape[dim] <= index < x.shape[dim]:
        raise NoRule(f"element {index} of {x} along {dim}")
    return view_scatter(x)


@shape("aten.slice_scatter.default")
def slice_scatter(
    x: TensorType, src: TensorType, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> TensorType:
    dim = wrapped_dim(dim, x.ndim)
    if (
        not x.ndim
        or step < 1
        or src.shape[dim : dim + 1] != (len(range(*slice(start, end, step).indices(x.shape[dim]))),)
    ):
        raise NoRule(f"{src} into {start}:{end}:{step} of {x} along {dim}")
    return view_scatter(x)
