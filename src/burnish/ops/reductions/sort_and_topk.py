"""Shape rules of operators that sort: sort, topk, kthvalue, mode.

topk(f32[4, 9], 3)        f32[4, 3], i64[4, 3]
"""

from __future__ import annotations

import torch

from ...tensors.eager_strides import preserved_stride
from ...tensors.tensor_types import TensorType
from ..operator_record import fresh, shape, wrapped_dim
from .sums_and_extremes import max_dim_shape


@shape("aten.mode.default")
def mode_shape(x: TensorType, dim: int = -1, keepdim: bool = False) -> tuple[TensorType, TensorType]:
    return max_dim_shape(x, dim, keepdim)


@shape("aten.kthvalue.default")
def kthvalue_shape(x: TensorType, k: int, dim: int = -1, keepdim: bool = False) -> tuple[TensorType, TensorType]:
    return max_dim_shape(x, dim, keepdim)


@shape("aten.topk.default")
def topk_shape(
    x: TensorType, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[TensorType, TensorType]:
    dim = wrapped_dim(dim, x.ndim)
    sizes = [k if d == dim else n for d, n in enumerate(x.shape)]
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


def like_twice(x: TensorType) -> tuple[TensorType, TensorType]:
    stride = preserved_stride(x)
    return TensorType(x.shape, stride, x.dtype, x.device), TensorType(x.shape, stride, torch.int64, x.device)


@shape("aten.sort.default")
def sort_shape(x: TensorType, dim: int = -1, descending: bool = False) -> tuple[TensorType, TensorType]:
    return like_twice(x)


@shape("aten.sort.stable")
def sort_stable_shape(
    x: TensorType, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[TensorType, TensorType]:
    return like_twice(x)
