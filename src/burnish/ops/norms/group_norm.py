"""Group norm: shape rules, decomposition, gradient.

native_group_norm(f32[2, 6, 5, 5], f32[6], f32[6], 2, 6, 25, 3, 1e-5)     f32[2, 6, 5, 5], f32[2, 3], f32[2, 3]
"""

from __future__ import annotations

from typing import Any

from ...tensors.tensor_types import TensorType
from ..memory_format import formatted, is_contiguous_as, suggested
from ..operator_record import Arguments, NoRule, call_decomposition, call_shape, decomposition, fresh, masked
from ..reductions.reduction_dims_and_dtypes import floats, widened
from .shared_formulas import (
    affine,
    corrected_deviations,
    in_dtypes_of,
    parameter_dtype,
    parameters_of_affine,
    through_norm,
)

# -- shape rules -------------------------------------------------------------------------------------------------------


@call_shape("aten.native_group_norm.default")
def group_norm_shape(call: Arguments) -> tuple[TensorType, ...]:
    x = call.input
    groups = fresh(x, (call.N, call.group), parameter_dtype(x, call.weight, call.bias))
    return formatted(x, x.shape, suggested(x)), groups, groups


@call_shape("aten.native_group_norm_backward.default")
def group_norm_backward_shape(call: Arguments) -> tuple[TensorType | None, ...]:
    """Dense in the format of `x`. torch 2.11 drops the strides of size-1 dimensions; later versions keep them."""
    x = call.input
    parameter = fresh(x if call.weight is None else call.weight, (call.C,))
    dense = formatted(x, x.shape, suggested(x))
    if dense.stride != x.stride and x.numel and is_contiguous_as(x, suggested(x)):
        raise NoRule(f"strides {x.stride} of {x.shape}")
    return masked((dense, parameter, parameter), call.output_mask)


# -- decomposition -----------------------------------------------------------------------------------------------------


@decomposition("aten.native_group_norm.default")
def group_norm(g: Any, x: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    # Eager computes x * scale - mean * scale per channel, which is less precise. The difference is visible if a weight
    # is infinite, so eager's formula is used there. Each step has the full size, so that all is one kernel.
    floats(x)
    shape, result, size = x.shape, x.dtype, (N, group, C // group, HxW)
    statistics = parameter_dtype(x, weight, bias)
    rows = g.reshape(widened(g, x), size)
    apart, mean, variance = corrected_deviations(g, rows, (2, 3))
    rstd = g("rsqrt", g("add.Scalar", variance, eps))
    weight, bias = (None if p is None else g.reshape(widened(g, p), (1, *size[1:3], 1)) for p in (weight, bias))
    y = affine(g, g("mul.Tensor", apart, rstd), weight, bias)
    if weight is not None:
        as_eager = g("addcmul", g("mul.Tensor", rows, weight), g("neg", mean), weight)
        as_eager = as_eager if bias is None else g("add.Tensor", as_eager, bias)
        y = g("where.self", g("isinf", weight), as_eager, y)
    kept = [g.convert(g.reshape(s, (N, group)), statistics) for s in (mean, rstd)]
    return g.convert(g.reshape(y, shape), result), *kept


# -- gradient ----------------------------------------------------------------------------------------------------------


@call_decomposition("aten.native_group_norm_backward.default")
def group_norm_backward(g: Any, call: Arguments) -> Any:
    x, weight, mask = call.input, call.weight, call.output_mask
    floats(x)
    shape, dtype, size = x.shape, x.dtype, (call.N, call.group, call.C // call.group, call.HxW)
    rows, u = (g.reshape(widened(g, part), size) for part in (x, call.grad_out))
    average, rstd = (g.reshape(widened(g, part), (*size[:2], 1, 1)) for part in (call.mean, call.rstd))
    normed = g("mul.Tensor", g("sub.Tensor", rows, average), rstd)
    found = [None, *parameters_of_affine(g, u, normed, (0, 3), [call.C], mask[1:])]
    if mask[0]:
        if weight is not None:
            u = g("mul.Tensor", u, g.reshape(widened(g, weight), (1, *size[1:3], 1)))
        found[0] = g.reshape(through_norm(g, u, normed, rstd, (2, 3)), shape)
    return in_dtypes_of(g, found, dtype, weight)
