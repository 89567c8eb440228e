"""Reductions to a value: sums, means, products, any and all, maxima and minima with their positions.

    sum(i32[2, 3], [1])       i64[2]
    max(f32[2, 3], 0)         f32[3], i64[3]

Each becomes a primitive reduction between conversions: half precisions are computed in f32.
"""

from __future__ import annotations

from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import kind
from ..operator_record import NoRule, decomposition, fresh, shape
from .reduction_dims_and_dtypes import (
    Dims,
    count,
    normalized_dims,
    reduced,
    require_real,
    summed,
    summed_dtype,
    widened,
)

# -- shape rules -------------------------------------------------------------------------------------------------------


@shape("aten.sum.default", "aten.prod.default")
def sum_all_shape(x: TensorType, *, dtype: torch.dtype | None = None) -> TensorType:
    return fresh(x, (), summed_dtype(x, dtype))


@shape("aten.sum.dim_IntList", "aten.nansum.default")
def sum_dims_shape(
    x: TensorType, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorType:
    return reduced(x, dim, keepdim, summed_dtype(x, dtype))


@shape("aten.prod.dim_int")
def prod_dim_shape(x: TensorType, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorType:
    return reduced(x, dim, keepdim, summed_dtype(x, dtype))


@shape("aten.mean.default")
def mean_all_shape(x: TensorType, *, dtype: torch.dtype | None = None) -> TensorType:
    return mean_dims_shape(x, None, dtype=dtype)


@shape("aten.mean.dim")
def mean_dims_shape(x: TensorType, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorType:
    dtype = dtype or x.dtype
    if kind(dtype) < 2:
        raise NoRule(f"a mean in {dtype}")
    return reduced(x, dim, keepdim, dtype)


@shape("aten.amax.default", "aten.amin.default")
def amax_shape(x: TensorType, dim: Dims = (), keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim)


@shape("aten.max.default", "aten.min.default", "aten.median.default", "aten.nanmedian.default")
def max_all_shape(x: TensorType) -> TensorType:
    return fresh(x, ())


@shape("aten.aminmax.default")
def aminmax_shape(x: TensorType, *, dim: int | None = None, keepdim: bool = False) -> tuple[TensorType, TensorType]:
    found = reduced(x, dim, keepdim)
    return found, found


@shape("aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim", "aten.all.dims")
def any_dims_shape(x: TensorType, dim: Dims = None, keepdim: bool = False) -> TensorType:
    """uint8 gives uint8, for torch's backward compatibility: it once served as bool."""
    return reduced(x, dim, keepdim, torch.uint8 if x.dtype == torch.uint8 else torch.bool)


@shape("aten.argmax.default", "aten.argmin.default")
def argmax_shape(x: TensorType, dim: int | None = None, keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim, torch.int64)


@shape("aten.count_nonzero.dim_IntList", "aten.count_nonzero.default")
def count_nonzero_shape(x: TensorType, dim: Dims = None) -> TensorType:
    return reduced(x, dim, False, torch.int64)


@shape("aten.logsumexp.default")
def logsumexp_shape(x: TensorType, dim: Dims, keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim, torch.get_default_dtype() if kind(x.dtype) < 2 else None)


@shape("aten.max.dim", "aten.min.dim", "aten.median.dim", "aten.nanmedian.dim")
def max_dim_shape(x: TensorType, dim: int, keepdim: bool = False) -> tuple[TensorType, TensorType]:
    return reduced(x, dim, keepdim), reduced(x, dim, keepdim, torch.int64)


# -- sums, means, products, any and all --------------------------------------------------------------------------------


def in_dtype_of_result(g: Any, x: Any, dtype: torch.dtype | None) -> Any:
    """The operand of a sum or a product: of integers and truth values, they are of 64 bits."""
    require_real(x)
    result = dtype or (torch.int64 if kind(x.dtype) < 2 else x.dtype)
    if kind(result) == 3:
        raise NoRule("complex numbers")
    return g.convert(x, result)


@decomposition("aten.sum.default")
def sum_all(g: Any, x: Any, dtype: torch.dtype | None = None) -> Any:
    return sum_over(g, x, None, False, dtype)


@decomposition("aten.sum.dim_IntList")
def sum_over(g: Any, x: Any, dim: Dims, keepdim: bool = False, dtype: torch.dtype | None = None) -> Any:
    x = in_dtype_of_result(g, x, dtype)
    return g.convert(summed(g, widened(g, x), normalized_dims(x, dim), keepdim), x.dtype)


@decomposition("aten.mean.default")
def mean_all(g: Any, x: Any, dtype: torch.dtype | None = None) -> Any:
    return mean_over(g, x, None, False, dtype)


@decomposition("aten.mean.dim")
def mean_over(g: Any, x: Any, dim: Dims, keepdim: bool = False, dtype: torch.dtype | None = None) -> Any:
    require_real(x)
    result = dtype or x.dtype
    if kind(result) != 2:
        raise NoRule(f"{result}")
    dims = normalized_dims(x, dim)
    total = summed(g, widened(g, g.convert(x, result)), dims, keepdim)
    return g.convert(g("div.Scalar", total, float(count(x, dims))), result)


@decomposition("aten.prod.default")
def prod_all(g: Any, x: Any, dtype: torch.dtype | None = None) -> Any:
    x = in_dtype_of_result(g, x, dtype)
    return g.convert(g.reduce("prod", widened(g, x), (), False), x.dtype) if x.ndim else x


@decomposition("aten.prod.dim_int")
def prod_over(g: Any, x: Any, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None) -> Any:
    if not x.ndim:
        raise NoRule("no dimension")
    x = in_dtype_of_result(g, x, dtype)
    return g.convert(g.reduce("prod", widened(g, x), normalized_dims(x, dim), keepdim), x.dtype)


@decomposition("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_over(g: Any, x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return truth(g, "any", x, dim, keepdim)


@decomposition("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_over(g: Any, x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return truth(g, "all", x, dim, keepdim)


def truth(g: Any, op: str, x: Any, dim: Dims, keepdim: bool) -> Any:
    require_real(x)
    if not x.ndim or isinstance(dim, (list, tuple)) and not dim:
        raise NoRule("no dimension to reduce")
    found = g.reduce(op, g.convert(x, torch.bool), normalized_dims(x, dim), keepdim)
    return g.convert(found, torch.uint8) if x.dtype is torch.uint8 else found


# -- maximum and minimum -----------------------------------------------------------------------------------------------


@decomposition("aten.amax.default")
def amax(g: Any, x: Any, dim: Dims = (), keepdim: bool = False) -> Any:
    return extreme(g, "max", x, dim, keepdim)


@decomposition("aten.amin.default")
def amin(g: Any, x: Any, dim: Dims = (), keepdim: bool = False) -> Any:
    return extreme(g, "min", x, dim, keepdim)


@decomposition("aten.max.default")
def max_all(g: Any, x: Any) -> Any:
    return extreme(g, "max", x, None, False)


@decomposition("aten.min.default")
def min_all(g: Any, x: Any) -> Any:
    return extreme(g, "min", x, None, False)


def extreme(g: Any, op: str, x: Any, dim: Dims, keepdim: bool) -> Any:
    require_real(x)
    if not x.ndim:
        raise NoRule("no dimension")
    if x.dtype is torch.bool:
        return g.reduce("any" if op == "max" else "all", x, normalized_dims(x, dim), keepdim)
    return g.convert(g.reduce(op, widened(g, x), normalized_dims(x, dim), keepdim), x.dtype)


@decomposition("aten.max.dim")
def max_over(g: Any, x: Any, dim: int, keepdim: bool = False) -> Any:
    return extreme(g, "max", x, dim, keepdim), argmax(g, x, dim, keepdim)


@decomposition("aten.min.dim")
def min_over(g: Any, x: Any, dim: int, keepdim: bool = False) -> Any:
    return extreme(g, "min", x, dim, keepdim), argmin(g, x, dim, keepdim)


@decomposition("aten.argmax.default")
def argmax(g: Any, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return position(g, "argmax", x, dim, keepdim)


@decomposition("aten.argmin.default")
def argmin(g: Any, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return position(g, "argmin", x, dim, keepdim)


def position(g: Any, op: str, x: Any, dim: int | None, keepdim: bool) -> Any:
    require_real(x)
    if not x.ndim or x.dtype is torch.bool:
        raise NoRule("no dimension, or booleans")
    return g.reduce(op, widened(g, x), normalized_dims(x, dim), keepdim)
