"""Layer norm and RMS norm: shape rules, decompositions, gradients.

native_layer_norm(f32[2, 3, 8], [8], f32[8], f32[8], 1e-5)     f32[2, 3, 8], f32[2, 3, 1], f32[2, 3, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ..operator_record import Arguments, NoRule, call_decomposition, call_shape, decomposition, fresh, masked
from ..reductions.reduction_dims_and_dtypes import count, floats, widened
from .shared_formulas import (
    Mask,
    affine,
    corrected_deviations,
    in_dtypes_of,
    parameters_of_affine,
    statistics_dtype,
    through_norm,
)

# -- shape rules -------------------------------------------------------------------------------------------------------


@call_shape("aten.native_layer_norm.default")
def layer_norm_shape(call: Arguments) -> tuple[TensorType, ...]:
    rows = fresh_rows(call, call.weight, call.bias)
    return fresh(call.input, call.input.shape), rows, rows


@call_shape("aten._fused_rms_norm.default")
def rms_norm_shape(call: Arguments) -> tuple[TensorType, ...]:
    return fresh(call.input, call.input.shape), fresh_rows(call, call.weight)


def fresh_rows(call: Arguments, *parameters: TensorType | None) -> TensorType:
    """The type of a statistic of each row."""
    x, normalized = call.input, tuple(call.normalized_shape)
    kept = x.ndim - len(normalized)
    if x.shape[kept:] != normalized:
        raise NoRule(f"a norm of {list(normalized)} over {list(x.shape)}")
    return fresh(x, (*x.shape[:kept], *(1,) * len(normalized)), statistics_dtype(x, *parameters))


@call_shape("aten.native_layer_norm_backward.default")
def layer_norm_backward_shape(call: Arguments) -> tuple[TensorType | None, ...]:
    parameter = fresh(call.input if call.weight is None else call.weight, call.normalized_shape)
    return masked((fresh(call.input, call.input.shape), parameter, parameter), call.output_mask)


# -- decompositions ----------------------------------------------------------------------------------------------------


def normed_dims(x: Any, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    floats(x)
    if not normalized_shape:
        raise NoRule("no dimension")
    return tuple(range(x.ndim - len(normalized_shape), x.ndim))


@decomposition("aten.native_layer_norm.default")
def layer_norm(g: Any, x: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    result, dims = x.dtype, normed_dims(x, normalized_shape)
    x = widened(g, x)
    apart, mean, variance = corrected_deviations(g, x, dims)
    rstd = g("rsqrt", g("add.Scalar", variance, eps))
    y = g("mul.Tensor", apart, rstd)
    return g.convert(affine(g, y, weight, bias), result), mean, rstd


@decomposition("aten._fused_rms_norm.default")
def rms_norm(g: Any, x: Any, normalized_shape: Sequence[int], weight: Any, eps: float | None) -> Any:
    result, dims = x.dtype, normed_dims(x, normalized_shape)
    eps = torch.finfo(result).eps if eps is None else eps
    x = widened(g, x)
    square = g("div.Scalar", g.reduce("sum", g("mul.Tensor", x, x), dims), float(count(x, dims)))
    rstd = g("rsqrt", g("add.Scalar", square, eps))
    return g.convert(affine(g, g("mul.Tensor", x, rstd), weight, None), result), rstd


# -- gradients ---------------------------------------------------------------------------------------------------------


@call_decomposition("aten.native_layer_norm_backward.default")
def layer_norm_backward(g: Any, call: Arguments) -> Any:
    return norm_backward(g, call, call.mean, call.output_mask)


@call_decomposition("aten._fused_rms_norm_backward.default")
def rms_norm_backward(g: Any, call: Arguments) -> Any:
    return norm_backward(g, call, None, (*call.output_mask, False))[:2]


def norm_backward(g: Any, call: Arguments, average: Any, mask: Mask) -> tuple:
    """`average` is None for RMS norm."""
    x, weight, normalized_shape = call.input, call.weight, call.normalized_shape
    dims, outer = normed_dims(x, normalized_shape), tuple(range(x.ndim - len(normalized_shape)))
    if not outer:
        raise NoRule("one row")
    grad, average, rstd = (part if part is None else widened(g, part) for part in (call.grad_out, average, call.rstd))
    x, dtype = widened(g, x), x.dtype
    normed = g("mul.Tensor", x if average is None else g("sub.Tensor", x, average), rstd)
    u = grad if weight is None else g("mul.Tensor", grad, widened(g, weight))
    found = [through_norm(g, u, normed, rstd, dims, centre=average is not None) if mask[0] else None]
    found += parameters_of_affine(g, grad, normed, outer, list(normalized_shape), mask[1:])
    return in_dtypes_of(g, found, dtype, weight)
