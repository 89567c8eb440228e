"""Shape rules of operators that sort: sort, topk, kthvalue, mode.

topk(f32[4, 9], 3)        f32[4, 3], i64[4, 3]
"""

from __future__ import annotations

import torch

from ...tensors.tensor_types import TensorType
from ..memory_format import copied
from ..operator_record import call_shape, fresh, shape, wrapped_dim
from .reduction_dims_and_dtypes import own, positions, reduction_shapes

reduction_shapes("aten.mode.default aten.kthvalue.default", own, positions)


@shape("aten.topk.default")
def topk_shape(
    x: TensorType, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[TensorType, TensorType]:
    dim = wrapped_dim(dim, x.ndim)
    sizes = [k if d == dim else n for d, n in enumerate(x.shape)]
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


call_shape("aten.sort.default", "aten.sort.stable")(lambda a: (copied(a.self), copied(a.self, torch.int64)))
