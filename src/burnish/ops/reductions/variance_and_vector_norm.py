"""Variance, standard deviation and vector norms.

var(x) = sum((x - mean(x)) ** 2) / (n - 1)       in f64, as eager accumulates
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import kind
from ..operator_record import NoRule, decomposition, fresh, shape
from ..shapes.views import REAL_OF
from .reduction_dims_and_dtypes import Dims, count, floats, normalized_dims, real_dtype, reduced, summed, widened

# -- shape rules -------------------------------------------------------------------------------------------------------


@shape("aten.var.default", "aten.std.default")
def var_all_shape(x: TensorType, unbiased: bool = True) -> TensorType:
    return fresh(x, (), real_dtype(x))


@shape("aten.var.dim", "aten.std.dim")
def var_dims_shape(x: TensorType, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim, real_dtype(x))


@shape("aten.var.correction", "aten.std.correction")
def var_correction_shape(
    x: TensorType, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> TensorType:
    return reduced(x, dim, keepdim, real_dtype(x))


@shape("aten.var_mean.correction", "aten.std_mean.correction")
def var_mean_correction_shape(
    x: TensorType, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[TensorType, TensorType]:
    return reduced(x, dim, keepdim, real_dtype(x)), reduced(x, dim, keepdim)


@shape("aten.linalg_vector_norm.default")
def vector_norm_shape(
    x: TensorType, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorType:
    dtype = dtype or x.dtype
    return reduced(x, dim, keepdim, REAL_OF.get(dtype, dtype))


@shape("aten.norm.Scalar")
def norm_all_shape(x: TensorType, p: float = 2) -> TensorType:
    return fresh(x, (), real_dtype(x))


@shape("aten.norm.ScalarOpt_dim")
def norm_dims_shape(x: TensorType, p: float | None, dim: Dims, keepdim: bool = False) -> TensorType:
    return reduced(x, dim, keepdim, real_dtype(x))


# -- decompositions ----------------------------------------------------------------------------------------------------


def moments(g: Any, x: Any, dims: tuple[int, ...], correction: float) -> tuple[Any, Any]:
    """Mean and variance of an operand in its compute dtype, with reduced dimensions kept."""
    n = count(x, dims)
    mean = g("div.Scalar", g.reduce("sum", x, dims), float(n))
    apart = g("sub.Tensor", x, mean)
    total = g.reduce("sum", g("mul.Tensor", apart, apart), dims)
    freedom = float(n) - correction
    if correction <= 1:
        return mean, g("div.Scalar", total, max(freedom, 0.0))
    # Compiled for many sizes, it becomes a formula of them, so what is 0 for small ones is decided by the program.
    left = g("clamp_min", g.full((), freedom, total.type), 0.0)
    return mean, g("div.Tensor", total, left)


@decomposition("aten.var.correction")
def var(g: Any, x: Any, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    return var_mean(g, x, dim, correction=correction, keepdim=keepdim)[0]


@decomposition("aten.std.correction")
def std(g: Any, x: Any, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    floats(x)
    return g.convert(g("sqrt", spread(g, x, dim, correction, keepdim)[0]), x.dtype)


@decomposition("aten.var_mean.correction")
def var_mean(g: Any, x: Any, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    floats(x)
    variance, mean = spread(g, x, dim, correction, keepdim)
    return g.convert(variance, x.dtype), g.convert(mean, x.dtype)


def spread(g: Any, x: Any, dim: Dims, correction: float | None, keepdim: bool) -> tuple[Any, Any]:
    if not x.ndim:
        raise NoRule("no dimension")
    dims = normalized_dims(x, dim)
    # Eager accumulates these in f64 for any dtype.
    mean, variance = moments(g, g.convert(x, torch.float64), dims, 1.0 if correction is None else float(correction))
    kept = [n for k, n in enumerate(x.shape) if k not in dims]
    return (variance, mean) if keepdim else (g.reshape(variance, kept), g.reshape(mean, kept))


@decomposition("aten.linalg_vector_norm.default")
def vector_norm(
    g: Any, x: Any, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    floats(x)
    if not x.ndim or ord not in (1, 2, math.inf):
        raise NoRule(f"the norm {ord}")
    result = dtype or x.dtype
    if kind(result) != 2:
        raise NoRule(f"{result}")
    dims, x = normalized_dims(x, dim), widened(g, g.convert(x, result))
    if ord == 2:
        return g.convert(g("sqrt", summed(g, g("mul.Tensor", x, x), dims, keepdim)), result)
    size = g("abs", x)
    return g.convert(g.reduce("sum" if ord == 1 else "max", size, dims, keepdim), result)
