"""Decompositions of reductions, softmax and norms into primitive reductions and element-wise operators.

    softmax(x) = e / sum(e) where e = exp(x - max(x))

The scheduler fuses each into one kernel, where every pass over a row is a stage. Half precisions are computed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...tensors.type_promotion import compute_dtype, kind
from ..memory_format import FORMATS, is_contiguous_as
from ..operator_record import NoRule, decomposition, wrapped_dim

Dims = Sequence[int] | int | None


def normalized_dims(x: Any, dims: Dims) -> tuple[int, ...]:
    """The nonnegative, sorted dimensions; None and an empty list mean all."""
    if dims is None or not isinstance(dims, int) and not len(dims):
        return tuple(range(x.ndim))
    found = tuple(sorted(wrapped_dim(d, x.ndim) for d in ([dims] if isinstance(dims, int) else dims)))
    return found if x.ndim else ()


def count(x: Any, dims: tuple[int, ...]) -> int:
    return math.prod(x.shape[d] for d in dims)


def widened(g: Any, x: Any) -> Any:
    """The operand in its compute dtype."""
    return g.convert(x, compute_dtype(x.dtype))


def require_real(x: Any) -> None:
    if kind(x.dtype) == 3:
        raise NoRule("complex numbers")


def floats(x: Any) -> None:
    if kind(x.dtype) != 2:
        raise NoRule(f"{x.dtype}")


def summed(g: Any, x: Any, dims: tuple[int, ...], keep: bool) -> Any:
    return g.reduce("sum", x, dims, keep) if x.ndim else x


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


# -- variance and norms ------------------------------------------------------------------------------------------------


def moments(g: Any, x: Any, dims: tuple[int, ...], correction: float) -> tuple[Any, Any]:
    """Mean and variance of an operand in its compute dtype, with reduced dimensions kept."""
    n = count(x, dims)
    mean = g("div.Scalar", g.reduce("sum", x, dims), float(n))
    apart = g("sub.Tensor", x, mean)
    total = g.reduce("sum", g("mul.Tensor", apart, apart), dims)
    return mean, g("div.Scalar", total, max(float(n) - correction, 0.0))


def corrected_deviations(g: Any, x: Any, dims: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The deviations from the mean, the mean and the variance. The mean is rounded, which is visible if a row varies
    little. So the mean of the deviations, computed in the same pass as the variance, is subtracted again.

    A long row whose mean is small compared with the deviations gets no such correction. There each subtraction loses
    the mean's last digits in the same way. That is not a rounding error of the mean: the correction would add error."""
    n = float(count(x, dims))
    first = g("div.Scalar", g.reduce("sum", x, dims), n)
    apart = g("sub.Tensor", x, first)
    rest = g("div.Scalar", g.reduce("sum", apart, dims), n)
    square = g("div.Scalar", g.reduce("sum", g("mul.Tensor", apart, apart), dims), n)
    # In a row of equal elements both are the mean's squared rounding error: the difference may be negative, and both
    # may be infinite.
    less = g("clamp_max", g("mul.Tensor", rest, rest), torch.finfo(x.dtype).max)
    variance = g("relu", g("sub.Tensor", square, less))
    if n >= LONG_ROW:
        is_small = g("lt.Tensor", g("mul.Tensor", first, first), g("mul.Scalar", variance, SMALL_MEAN**2))
        rest = g("where.ScalarSelf", is_small, 0.0, rest)
    return g("sub.Tensor", apart, rest), g("add.Tensor", first, rest), variance


SMALL_MEAN = 0.125
"""In standard deviations. About here the error of the sum, which grows with the mean, equals that of the correction."""

LONG_ROW = 384
"""In elements. In a shorter row the two errors are about equal for any mean, and the test costs time."""


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


# -- softmax -----------------------------------------------------------------------------------------------------------


@decomposition("aten._softmax.default")
def softmax(g: Any, x: Any, dim: int, half_to_float: bool) -> Any:
    floats(x)
    result = torch.float32 if half_to_float else x.dtype
    if not x.ndim:
        raise NoRule("no dimension")
    x = widened(g, x)
    dims = normalized_dims(x, dim)
    e = g("exp", g("sub.Tensor", x, g.reduce("max", x, dims)))
    return g.convert(g("div.Tensor", e, g.reduce("sum", e, dims)), result)


@decomposition("aten._log_softmax.default")
def log_softmax(g: Any, x: Any, dim: int, half_to_float: bool) -> Any:
    floats(x)
    result = torch.float32 if half_to_float else x.dtype
    if not x.ndim:
        raise NoRule("no dimension")
    x = widened(g, x)
    dims = normalized_dims(x, dim)
    shifted = g("sub.Tensor", x, g.reduce("max", x, dims))
    total = g.reduce("sum", g("exp", shifted), dims)
    return g.convert(g("sub.Tensor", shifted, g("log", total)), result)


# -- normalisation -----------------------------------------------------------------------------------------------------


@decomposition("aten.native_layer_norm.default")
def layer_norm(g: Any, x: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    floats(x)
    result = x.dtype
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    if not dims:
        raise NoRule("no dimension")
    x = widened(g, x)
    apart, mean, variance = corrected_deviations(g, x, dims)
    rstd = g("rsqrt", g("add.Scalar", variance, eps))
    y = g("mul.Tensor", apart, rstd)
    return g.convert(affine(g, y, weight, bias), result), mean, rstd


@decomposition("aten._fused_rms_norm.default")
def rms_norm(g: Any, x: Any, normalized_shape: Sequence[int], weight: Any, eps: float | None) -> Any:
    floats(x)
    result = x.dtype
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    if not dims:
        raise NoRule("no dimension")
    eps = torch.finfo(result).eps if eps is None else eps
    x = widened(g, x)
    square = g("div.Scalar", g.reduce("sum", g("mul.Tensor", x, x), dims), float(count(x, dims)))
    rstd = g("rsqrt", g("add.Scalar", square, eps))
    return g.convert(affine(g, g("mul.Tensor", x, rstd), weight, None), result), rstd


@decomposition("aten.native_group_norm.default")
def group_norm(g: Any, x: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    # Eager computes x * scale - mean * scale per channel, which is less precise. The difference is visible if a weight
    # is infinite, so eager's formula is used there. Each step has the full size, so that all is one kernel.
    floats(x)
    shape, result, size = x.shape, x.dtype, (N, group, C // group, HxW)
    rows = g.reshape(widened(g, x), size)
    apart, mean, variance = corrected_deviations(g, rows, (2, 3))
    rstd = g("rsqrt", g("add.Scalar", variance, eps))
    weight, bias = (None if p is None else g.reshape(widened(g, p), (1, *size[1:3], 1)) for p in (weight, bias))
    y = affine(g, g("mul.Tensor", apart, rstd), weight, bias)
    if weight is not None:
        as_eager = g("addcmul", g("mul.Tensor", rows, weight), g("neg", mean), weight)
        as_eager = as_eager if bias is None else g("add.Tensor", as_eager, bias)
        y = g("where.self", g("isinf", weight), as_eager, y)
    kept = [g.convert(g.reshape(s, (N, group)), result) for s in (mean, rstd)]
    return g.convert(g.reshape(y, shape), result), *kept


def affine(g: Any, y: Any, weight: Any, bias: Any) -> Any:
    """With both a weight and a bias, rounded once as in eager: the product and the bias often cancel."""
    weight, bias = (None if p is None else g.convert(p, y.dtype) for p in (weight, bias))
    if weight is not None and bias is not None:
        return g("addcmul", bias, y, weight)
    if weight is not None:
        return g("mul.Tensor", y, weight)
    return y if bias is None else g("add.Tensor", y, bias)


@decomposition("aten._native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    g: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    """x * scale + shift for dense inputs, as in eager. For others eager subtracts the mean first, which gives another
    result if a weight is infinite."""
    floats(x)

    def column(parameter: Any) -> Any:
        return None if parameter is None else g.reshape(parameter, (1, x.shape[1], *(1,) * (x.ndim - 2)))

    mean, variance = widened(g, mean), widened(g, variance)
    scale = g("rsqrt", g("add.Scalar", variance, eps))
    if any(is_contiguous_as(x.type, format) for format in FORMATS):
        if weight is not None:
            scale = g("mul.Tensor", scale, widened(g, weight))
        less = g("neg", mean)
        shift = g("mul.Tensor", less, scale) if bias is None else g("addcmul", widened(g, bias), less, scale)
        y = g("addcmul", column(shift), widened(g, x), column(scale))
    else:
        centred = g("sub.Tensor", widened(g, x), column(mean))
        y = affine(g, g("mul.Tensor", centred, column(scale)), column(weight), column(bias))
    empty = g.full((0,), 0.0, x.type)
    return g.convert(y, x.dtype), empty, empty


@decomposition("aten.native_batch_norm.default")
def batch_norm(
    g: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> Any:
    if training or mean is None or variance is None:
        raise NoRule("statistics of the batch")
    return batch_norm_inference(g, x, weight, bias, mean, variance, momentum, eps)
