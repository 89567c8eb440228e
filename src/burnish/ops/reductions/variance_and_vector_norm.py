"""Variance, standard deviation and vector norms.

var(x) = sum((x - mean(x)) ** 2) / (n - 1)       in f64, as eager accumulates
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...tensors.type_promotion import kind
from ..operator_record import Arguments, NoRule, call_decomposition
from ..shapes.views import REAL_OF
from .reduction_dims_and_dtypes import count, floats, own, real, reduced_by, reduction_shapes, summed, widened

# -- shape rules -------------------------------------------------------------------------------------------------------


def dtype_of_norm(a: Arguments) -> torch.dtype:
    dtype = a.dtype or a.self.dtype
    return REAL_OF.get(dtype, dtype)


reduction_shapes("aten.var.default aten.var.dim aten.var.correction", real)
reduction_shapes("aten.std.default aten.std.dim aten.std.correction", real)
reduction_shapes("aten.var_mean.correction aten.std_mean.correction", real, own)
reduction_shapes("aten.norm.Scalar aten.norm.ScalarOpt_dim", real)
reduction_shapes("aten.linalg_vector_norm.default", dtype_of_norm)


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


@call_decomposition("aten.var.correction")
def var(g: Any, a: Arguments) -> Any:
    return var_mean(g, a)[0]


@call_decomposition("aten.std.correction")
def std(g: Any, a: Arguments) -> Any:
    floats(a.self)
    return g.convert(g("sqrt", spread(g, a)[0]), a.self.dtype)


@call_decomposition("aten.var_mean.correction")
def var_mean(g: Any, a: Arguments) -> Any:
    floats(a.self)
    variance, mean = spread(g, a)
    return g.convert(variance, a.self.dtype), g.convert(mean, a.self.dtype)


def spread(g: Any, a: Arguments) -> tuple[Any, Any]:
    x, correction = a.self, a.correction
    if not x.ndim:
        raise NoRule("no dimension")
    dims, keepdim = reduced_by(a)
    # Eager accumulates these in f64 for any dtype.
    mean, variance = moments(g, g.convert(x, torch.float64), dims, 1.0 if correction is None else float(correction))
    kept = [n for k, n in enumerate(x.shape) if k not in dims]
    return (variance, mean) if keepdim else (g.reshape(variance, kept), g.reshape(mean, kept))


@call_decomposition("aten.linalg_vector_norm.default")
def vector_norm(g: Any, a: Arguments) -> Any:
    x = a.self
    floats(x)
    if not x.ndim or a.ord not in (1, 2, math.inf):
        raise NoRule(f"the norm {a.ord}")
    result = a.dtype or x.dtype
    if kind(result) != 2:
        raise NoRule(f"{result}")
    x = widened(g, g.convert(x, result))
    dims, keepdim = reduced_by(a)
    if a.ord == 2:
        return g.convert(g("sqrt", summed(g, g("mul.Tensor", x, x), dims, keepdim)), result)
    size = g("abs", x)
    return g.convert(g.reduce("sum" if a.ord == 1 else "max", size, dims, keepdim), result)
