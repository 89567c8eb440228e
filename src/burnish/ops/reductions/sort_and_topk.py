"""Shape rules of operators that sort: sort, topk, kthvalue, mode.

topk(f32[4, 9], 3)        f32[4, 3], i64[4, 3]
"""

from __future__ import annotations

import torch

from ...tensors.tensor_types import TensorType
from ..memory_format import copied
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


@shape("aten.sort.default", "aten.sort.stable")
def sort_shape(x: TensorType, *_: object, **__: object) -> tuple[TensorType, TensorType]:
    return copied(x), copied(x, torch.int64)
