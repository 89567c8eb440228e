"""Shape rules of reductions, softmax, cumulative operators and sorting.

sum(i32[2, 3], [1])                i64[2]
max(f32[2, 3], 0)                  f32[3], i64[3]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...tensors.eager_strides import preserved_stride
from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import kind
from ..operator_record import NoRule, fresh, shape, wrapped_dim
from ..shapes.views import REAL_OF

Dims = int | Sequence[int] | None


def reduced_dims(x: TensorType, dim: Dims) -> set[int]:
    """The reduced dimensions; None and an empty list mean all."""
    if dim is None or dim == [] or dim == ():
        return set(range(x.ndim))
    asked = (dim,) if isinstance(dim, int) else dim
    found = {wrapped_dim(d, x.ndim) for d in asked}
    if len(found) != len(asked):
        raise NoRule(f"dimension twice in {dim}")
    return found


def reduced(x: TensorType, dim: Dims, keepdim: bool, dtype: torch.dtype | None = None) -> TensorType:
    gone = reduced_dims(x, dim)
    sizes = [1 if k in gone else n for k, n in enumerate(x.shape) if keepdim or k not in gone]
    return fresh(x, sizes, dtype)


def summed_dtype(x: TensorType, dtype: torch.dtype | None) -> torch.dtype:
    """Bools and integers are summed in int64."""
    return dtype or (x.dtype if kind(x.dtype) > 1 else torch.int64)


def real_dtype(x: TensorType) -> torch.dtype:
    return REAL_OF.get(x.dtype, x.dtype)


# -- reductions to a value ---------------------------------------------------------------------------------------------


@shape("aten.sum.default", "aten.prod.default")
def sum_all(x: TensorType, *, dtype: torch.dtype | None = None) -> TensorType:
    return fresh(x, (), summed_dtype(x, dtype))


@shape("aten.sum.dim_IntList", "aten.nansum.default")
def sum_dims(x: TensorType, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorType:
    return reduced(x, dim, keepdim, summed_dtype(x, dtype))


@shape("aten.prod.dim_int")
def prod_dim(x: TensorType, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorType:
    return reduced(x, dim, keepdim, summed_dtype(x, dtype))


@shape("aten.mean.default")
def mean_all(x: TensorType, *, dtype: torch.dtype | None = None) -> TensorType:
    return mean_dims(x, None, dtype=dtype)


@shape("aten.mean.dim")
def mean_dims(x: TensorType, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorType:
    dtype = dtype or x.dtype
    if kind(dtype) < 2:
        raise NoRule(f"a mean in {dtype}")
    return reduced(x, dim, keepdim, dtype)


@shape("aten.amax.default", "aten.amin.default")
def amax(x: TensorType, dim: Dims = (), keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim)


@shape("aten.max.default", "aten.min.default", "aten.median.default", "aten.nanmedian.default")
def max_all(x: TensorType) -> TensorType:
    return fresh(x, ())


@shape("aten.aminmax.default")
def aminmax(x: TensorType, *, dim: int | None = None, keepdim: bool = False) -> tuple[TensorType, TensorType]:
    found = reduced(x, dim, keepdim)
    return found, found


@shape("aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim", "aten.all.dims")
def any_dims(x: TensorType, dim: Dims = None, keepdim: bool = False) -> TensorType:
    """uint8 gives uint8, for torch's backward compatibility: it once served as bool."""
    return reduced(x, dim, keepdim, torch.uint8 if x.dtype == torch.uint8 else torch.bool)


@shape("aten.argmax.default", "aten.argmin.default")
def argmax(x: TensorType, dim: int | None = None, keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim, torch.int64)


@shape("aten.count_nonzero.dim_IntList", "aten.count_nonzero.default")
def count_nonzero(x: TensorType, dim: Dims = None) -> TensorType:
    return reduced(x, dim, False, torch.int64)


@shape("aten.var.default", "aten.std.default")
def var_all(x: TensorType, unbiased: bool = True) -> TensorType:
    return fresh(x, (), real_dtype(x))


@shape("aten.var.dim", "aten.std.dim")
def var_dims(x: TensorType, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim, real_dtype(x))


@shape("aten.var.correction", "aten.std.correction")
def var_correction(
    x: TensorType, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> TensorType:
    return reduced(x, dim, keepdim, real_dtype(x))


@shape("aten.var_mean.correction", "aten.std_mean.correction")
def var_mean_correction(
    x: TensorType, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[TensorType, TensorType]:
    return reduced(x, dim, keepdim, real_dtype(x)), reduced(x, dim, keepdim)


@shape("aten.linalg_vector_norm.default")
def vector_norm(
    x: TensorType, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorType:
    dtype = dtype or x.dtype
    return reduced(x, dim, keepdim, REAL_OF.get(dtype, dtype))


@shape("aten.norm.Scalar")
def norm_all(x: TensorType, p: float = 2) -> TensorType:
    return fresh(x, (), real_dtype(x))


@shape("aten.norm.ScalarOpt_dim")
def norm_dims(x: TensorType, p: float | None, dim: Dims, keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim, real_dtype(x))


@shape("aten.logsumexp.default")
def logsumexp(x: TensorType, dim: Dims, keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim, torch.get_default_dtype() if kind(x.dtype) < 2 else None)


# -- reductions to a value and its index -------------------------------------------------------------------------------


@shape("aten.max.dim", "aten.min.dim", "aten.median.dim", "aten.nanmedian.dim")
def max_dim(x: TensorType, dim: int, keepdim: bool = False) -> tuple[TensorType, TensorType]:
    return reduced(x, dim, keepdim), reduced(x, dim, keepdim, torch.int64)


@shape("aten.mode.default")
def mode(x: TensorType, dim: int = -1, keepdim: bool = False) -> tuple[TensorType, TensorType]:
    return max_dim(x, dim, keepdim)


@shape("aten.kthvalue.default")
def kthvalue(x: TensorType, k: int, dim: int = -1, keepdim: bool = False) -> tuple[TensorType, TensorType]:
    return max_dim(x, dim, keepdim)


@shape("aten.topk.default")
def topk(
    x: TensorType, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[TensorType, TensorType]:
    dim = wrapped_dim(dim, x.ndim)
    sizes = [k if d == dim else n for d, n in enumerate(x.shape)]
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


# -- along a dimension -------------------------------------------------------------------------------------------------


def like_twice(x: TensorType) -> tuple[TensorType, TensorType]:
    stride = preserved_stride(x)
    return TensorType(x.shape, stride, x.dtype, x.device), TensorType(x.shape, stride, torch.int64, x.device)


@shape("aten.sort.default")
def sort(x: TensorType, dim: int = -1, descending: bool = False) -> tuple[TensorType, TensorType]:
    return like_twice(x)


@shape("aten.sort.stable")
def sort_stable(
    x: TensorType, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[TensorType, TensorType]:
    return like_twice(x)


@shape("aten._softmax.default", "aten._log_softmax.default", "aten._safe_softmax.default")
def softmax(x: TensorType, dim: int, half_to_float: bool = False) -> TensorType:
    return fresh(x, x.shape, torch.float32 if half_to_float else None)


@shape("aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default")
def softmax_backward(grad_output: TensorType, output: TensorType, dim: int, input_dtype: torch.dtype) -> TensorType:
    return fresh(grad_output, grad_output.shape, input_dtype)


@shape("aten.cumsum.default", "aten.cumprod.default")
def cumsum(x: TensorType, dim: int, *, dtype: torch.dtype | None = None) -> TensorType:
    return fresh(x, x.shape, summed_dtype(x, dtype))


@shape("aten.logcumsumexp.default")
def logcumsumexp(x: TensorType, dim: int) -> TensorType:
    return fresh(x, x.shape)


@shape("aten.cummax.default", "aten.cummin.default")
def cummax(x: TensorType, dim: int) -> tuple[TensorType, TensorType]:
    return fresh(x, x.shape), fresh(x, x.shape, torch.int64)
