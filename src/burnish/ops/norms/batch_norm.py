"""Batch norm in evaluation and in training: shape rules, decompositions, gradient.

_native_batch_norm_legit_functional(f32[8, 3, 4, 4], …, training=True)
    f32[8, 3, 4, 4], mean f32[3], 1 / deviation f32[3], running_mean f32[3], running_var f32[3]
"""

from __future__ import annotations

from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.views.view_maps import Slice
from ..memory_format import FORMATS, copied, dense_format, formatted, is_contiguous_as, suggested
from ..operator_record import Arguments, NoRule, call_decomposition, call_shape, fresh, masked
from ..reductions.reduction_dims_and_dtypes import count, floats, mean, widened
from .shared_formulas import affine, in_dtypes_of, parameter_dtype, statistics_dtype

# -- shape rules -------------------------------------------------------------------------------------------------------


def types_of_batch_norm(call: Arguments, training: bool) -> tuple[TensorType, ...]:
    """The result and the saved statistics. In evaluation these are two empty tensors."""
    x = call.input
    parameters = [getattr(call, name, None) for name in ("weight", "bias", "running_mean", "running_var")]
    saved = fresh(x, (x.shape[1],) if training else (0,), statistics_dtype(x, *parameters))
    return formatted(x, x.shape, dense_format(x)), saved, saved


@call_shape(
    "aten.native_batch_norm.default", "aten._native_batch_norm_legit.default", "aten._native_batch_norm_legit.no_stats"
)
def batch_norm_shape(call: Arguments) -> tuple[TensorType, ...]:
    return types_of_batch_norm(call, call.training)


@call_shape("aten._native_batch_norm_legit_no_training.default")
def batch_norm_in_evaluation_shape(call: Arguments) -> tuple[TensorType, ...]:
    return types_of_batch_norm(call, False)


@call_shape("aten._batch_norm_with_update.default")
def batch_norm_with_reserve_shape(call: Arguments) -> tuple[TensorType, ...]:
    """The last result is the reserve space of a GPU library for the gradient; it is empty on a CPU."""
    return *types_of_batch_norm(call, True), fresh(call.input, (0,), torch.uint8)


@call_shape("aten._native_batch_norm_legit_functional.default")
def batch_norm_with_new_statistics_shape(call: Arguments) -> tuple[TensorType, ...]:
    """The updated running statistics are additional results."""
    return *batch_norm_shape(call), copied(call.running_mean), copied(call.running_var)


@call_shape("aten._batch_norm_with_update_functional.default")
def batch_norm_with_reserve_and_new_statistics_shape(call: Arguments) -> tuple[TensorType, ...]:
    return *batch_norm_with_reserve_shape(call), copied(call.running_mean), copied(call.running_var)


@call_shape("aten.native_batch_norm_backward.default")
def batch_norm_backward_shape(call: Arguments) -> tuple[TensorType | None, ...]:
    x = call.input
    parameter = fresh(x, x.shape[1:2], parameter_dtype(x, call.weight, call.running_mean, call.running_var))
    return masked((formatted(x, x.shape, suggested(x)), parameter, parameter), call.output_mask)


# -- in evaluation -----------------------------------------------------------------------------------------------------


@call_decomposition("aten._native_batch_norm_legit_no_training.default")
def batch_norm_inference(g: Any, call: Arguments) -> Any:
    """x * scale + shift for dense inputs, as in eager. For others eager subtracts the mean first, which gives another
    result if a weight is infinite."""
    x, weight, bias = call.input, call.weight, call.bias
    floats(x)

    def column(parameter: Any) -> Any:
        return None if parameter is None else g.reshape(parameter, (1, x.shape[1], *(1,) * (x.ndim - 2)))

    mean, variance = widened(g, call.running_mean), widened(g, call.running_var)
    scale = g("rsqrt", g("add.Scalar", variance, call.eps))
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


@call_decomposition("aten.native_batch_norm.default")
def batch_norm(g: Any, call: Arguments) -> Any:
    if call.training or call.running_mean is None or call.running_var is None:
        raise NoRule("statistics of the batch")
    return batch_norm_inference(g, call)


# -- in training -------------------------------------------------------------------------------------------------------


def per_channel(g: Any, x: Any, parameter: Any) -> Any:
    return g.reshape(widened(g, parameter), (1, x.shape[1], *(1,) * (x.ndim - 2)))


def channel_dims(x: Any) -> tuple[int, ...]:
    """All dimensions except channels."""
    if x.ndim < 2:
        raise NoRule("no channels")
    return (0, *range(2, x.ndim))


@call_decomposition("aten._native_batch_norm_legit_functional.default")
def batch_norm_training(g: Any, call: Arguments) -> Any:
    x = call.input
    floats(x)
    if not call.training:
        return *batch_norm_inference(g, call), call.running_mean, call.running_var
    y, average, variance, rstd = of_batch(g, call)
    n = count(x, channel_dims(x))
    if n < 2:
        raise NoRule("a batch of one")
    unbiased = g("mul.Scalar", variance, n / (n - 1))
    new_mean = updated_running_stat(g, call.running_mean, average, call.momentum)
    return y, average, rstd, new_mean, updated_running_stat(g, call.running_var, unbiased, call.momentum)


@call_decomposition("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(g: Any, call: Arguments) -> Any:
    floats(call.input)
    y, average, _, rstd = of_batch(g, call)
    return y, average, rstd


def of_batch(g: Any, call: Arguments) -> tuple[Any, Any, Any, Any]:
    """The result, and for each channel mean, variance and 1 / standard deviation."""
    x = call.input
    dims, channels = channel_dims(x), x.shape[1]
    # One pass computes both, in f64, from the differences to a channel's first element. The mean of these is at most
    # the standard deviation times the square root of the length, so the subtraction does not cancel.
    first = g.convert(g.view(x, *(Slice(dim, 0, 1, 1) for dim in dims)), torch.float64)
    apart = g("sub.Tensor", g.convert(x, torch.float64), first)
    offset, squares = mean(g, apart, dims), mean(g, g("mul.Tensor", apart, apart), dims)
    wide = widened(g, x)
    average = g.convert(g("add.Tensor", first, offset), wide.dtype)
    variance = g("sub.Tensor", squares, g("mul.Tensor", offset, offset))
    variance = g.convert(g("clamp_min", variance, 0), wide.dtype)
    apart = g("sub.Tensor", wide, average)
    rstd = g("rsqrt", g("add.Scalar", variance, call.eps))
    columns = [None if p is None else per_channel(g, x, p) for p in (call.weight, call.bias)]
    y = affine(g, g("mul.Tensor", apart, rstd), *columns)
    return g.convert(y, x.dtype), *(g.reshape(part, (channels,)) for part in (average, variance, rstd))


def updated_running_stat(g: Any, old: Any, new: Any, momentum: float) -> Any:
    """A running statistic after its update."""
    step = g("mul.Scalar", widened(g, new), momentum)
    return g.convert(g("add.Tensor", g("mul.Scalar", widened(g, old), 1 - momentum), step), old.dtype)


# -- gradient ----------------------------------------------------------------------------------------------------------


@call_decomposition("aten.native_batch_norm_backward.default")
def batch_norm_backward(g: Any, call: Arguments) -> Any:
    x, weight = call.input, call.weight
    floats(x)
    dims, dtype = channel_dims(x), x.dtype
    if not call.train and (call.running_mean is None or call.running_var is None):
        raise NoRule("no statistics")
    if call.train:
        average, rstd = per_channel(g, x, call.save_mean), per_channel(g, x, call.save_invstd)
    else:
        average = per_channel(g, x, call.running_mean)
        rstd = g("rsqrt", g("add.Scalar", per_channel(g, x, call.running_var), call.eps))
    grad, apart = widened(g, call.grad_out), g("sub.Tensor", widened(g, x), average)
    normed = g("mul.Tensor", apart, rstd)
    # Eager on a CPU accumulates f32 in f64, and the gradients of a channel often cancel.
    exact = torch.float64 if dtype is torch.float32 and x.type.device_facts.sums_in_float64 else grad.dtype
    long = g.convert(grad, exact)
    total = g.convert(g.reduce("sum", long, dims), grad.dtype)
    along = g.reduce("sum", g("mul.Tensor", long, g.convert(apart, exact)), dims)
    along = g("mul.Tensor", g.convert(along, grad.dtype), rstd)
    asked = zip((along, total), call.output_mask[1:], strict=True)
    to_x, to_parameters = None, [g.reshape(part, (x.shape[1],)) if is_asked else None for part, is_asked in asked]
    if call.output_mask[0]:
        scale = rstd if weight is None else g("mul.Tensor", rstd, per_channel(g, x, weight))
        if call.train:
            n = float(count(x, dims))
            grad = g("sub.Tensor", grad, g("div.Scalar", total, n))
            grad = g("sub.Tensor", grad, g("mul.Tensor", normed, g("div.Scalar", along, n)))
        to_x = g("mul.Tensor", grad, scale)
    return in_dtypes_of(g, [to_x, *to_parameters], dtype, weight)
