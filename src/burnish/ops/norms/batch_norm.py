"""Batch norm in evaluation and in training: shape rules, decompositions, gradient.

_native_batch_norm_legit_functional(f32[8, 3, 4, 4], …, training=True)
    f32[8, 3, 4, 4], mean f32[3], 1 / deviation f32[3], running_mean f32[3], running_var f32[3]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.views.view_maps import Slice
from ..memory_format import FORMATS, copied, dense_format, formatted, is_contiguous_as, suggested
from ..operator_record import NoRule, decomposition, fresh, shape
from ..reductions.reduction_dims_and_dtypes import count, floats, mean, widened
from .shared_formulas import Mask, affine, in_dtypes_of, parameter_dtype, statistics_dtype

# -- shape rules -------------------------------------------------------------------------------------------------------


@shape("aten.native_batch_norm.default", "aten._native_batch_norm_legit.default")
def batch_norm_shape(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType | None,
    running_var: TensorType | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    """In evaluation the saved statistics are two empty tensors."""
    saved = fresh(x, (x.shape[1],) if training else (0,), statistics_dtype(x, weight, bias, running_mean, running_var))
    return formatted(x, x.shape, dense_format(x)), saved, saved


@shape("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics_shape(
    x: TensorType, weight: TensorType | None, bias: TensorType | None, training: bool, momentum: float, eps: float
) -> tuple[TensorType, ...]:
    return batch_norm_shape(x, weight, bias, None, None, training, momentum, eps)


@shape("aten._native_batch_norm_legit_no_training.default")
def batch_norm_in_evaluation_shape(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType,
    running_var: TensorType,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    return batch_norm_shape(x, weight, bias, running_mean, running_var, False, momentum, eps)


@shape("aten._batch_norm_with_update.default")
def batch_norm_with_reserve_shape(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType | None,
    running_var: TensorType | None,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    """The last result is the reserve space of a GPU library for the gradient; it is empty on a CPU."""
    found = batch_norm_shape(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return *found, fresh(x, (0,), torch.uint8)


@shape("aten._native_batch_norm_legit_functional.default")
def batch_norm_with_new_statistics_shape(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType,
    running_var: TensorType,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    """The updated running statistics are additional results."""
    found = batch_norm_shape(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return *found, copied(running_mean), copied(running_var)


@shape("aten._batch_norm_with_update_functional.default")
def batch_norm_with_reserve_and_new_statistics_shape(
    x: TensorType,
    weight: TensorType | None,
    bias: TensorType | None,
    running_mean: TensorType,
    running_var: TensorType,
    momentum: float,
    eps: float,
) -> tuple[TensorType, ...]:
    found = batch_norm_with_reserve_shape(x, weight, bias, running_mean, running_var, momentum, eps)
    return *found, copied(running_mean), copied(running_var)


@shape("aten.native_batch_norm_backward.default")
def batch_norm_backward_shape(
    grad_out: TensorType,
    x: TensorType,
    weight: TensorType | None,
    running_mean: TensorType | None,
    running_var: TensorType | None,
    save_mean: TensorType | None,
    save_invstd: TensorType | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[TensorType | None, ...]:
    parameter = fresh(x, x.shape[1:2], parameter_dtype(x, weight, running_mean, running_var))
    found = formatted(x, x.shape, suggested(x)), parameter, parameter
    return tuple(type if asked else None for type, asked in zip(found, output_mask, strict=True))


# -- in evaluation -----------------------------------------------------------------------------------------------------


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


# -- in training -------------------------------------------------------------------------------------------------------


def per_channel(g: Any, x: Any, parameter: Any) -> Any:
    return g.reshape(widened(g, parameter), (1, x.shape[1], *(1,) * (x.ndim - 2)))


def channel_dims(x: Any) -> tuple[int, ...]:
    """All dimensions except channels."""
    if x.ndim < 2:
        raise NoRule("no channels")
    return (0, *range(2, x.ndim))


@decomposition("aten._native_batch_norm_legit_functional.default")
def batch_norm_training(
    g: Any,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    floats(x)
    if not training:
        found = batch_norm_inference(g, x, weight, bias, running_mean, running_var, momentum, eps)
        return *found, running_mean, running_var
    y, average, variance, rstd = of_batch(g, x, weight, bias, eps)
    n = count(x, channel_dims(x))
    if n < 2:
        raise NoRule("a batch of one")
    unbiased = g("mul.Scalar", variance, n / (n - 1))
    return (
        y,
        average,
        rstd,
        updated_running_stat(g, running_mean, average, momentum),
        updated_running_stat(g, running_var, unbiased, momentum),
    )


@decomposition("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    g: Any, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    floats(x)
    y, average, _, rstd = of_batch(g, x, weight, bias, eps)
    return y, average, rstd


def of_batch(g: Any, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    """The result, and for each channel mean, variance and 1 / standard deviation."""
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
    rstd = g("rsqrt", g("add.Scalar", variance, eps))
    columns = [None if p is None else per_channel(g, x, p) for p in (weight, bias)]
    y = affine(g, g("mul.Tensor", apart, rstd), *columns)
    return g.convert(y, x.dtype), *(g.reshape(part, (channels,)) for part in (average, variance, rstd))


def updated_running_stat(g: Any, old: Any, new: Any, momentum: float) -> Any:
    """A running statistic after its update."""
    step = g("mul.Scalar", widened(g, new), momentum)
    return g.convert(g("add.Tensor", g("mul.Scalar", widened(g, old), 1 - momentum), step), old.dtype)


# -- gradient ----------------------------------------------------------------------------------------------------------


@decomposition("aten.native_batch_norm_backward.default")
def batch_norm_backward(
    g: Any,
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Mask,
) -> Any:
    floats(x)
    dims, dtype = channel_dims(x), x.dtype
    if not train and (running_mean is None or running_var is None):
        raise NoRule("no statistics")
    if train:
        average, rstd = per_channel(g, x, save_mean), per_channel(g, x, save_invstd)
    else:
        average = per_channel(g, x, running_mean)
        rstd = g("rsqrt", g("add.Scalar", per_channel(g, x, running_var), eps))
    grad, apart = widened(g, grad), g("sub.Tensor", widened(g, x), average)
    normed = g("mul.Tensor", apart, rstd)
    # Eager on a CPU accumulates f32 in f64, and the gradients of a channel often cancel.
    exact = torch.float64 if dtype is torch.float32 and x.type.device.type == "cpu" else grad.dtype
    long = g.convert(grad, exact)
    total = g.convert(g.reduce("sum", long, dims), grad.dtype)
    along = g.reduce("sum", g("mul.Tensor", long, g.convert(apart, exact)), dims)
    along = g("mul.Tensor", g.convert(along, grad.dtype), rstd)
    found = [
        None,
        *(
            g.reshape(part, (x.shape[1],)) if wanted else None
            for part, wanted in zip((along, total), output_mask[1:], strict=True)
        ),
    ]
    if output_mask[0]:
        scale = rstd if weight is None else g("mul.Tensor", rstd, per_channel(g, x, weight))
        if train:
            n = float(count(x, dims))
            grad = g("sub.Tensor", grad, g("div.Scalar", total, n))
            grad = g("sub.Tensor", grad, g("mul.Tensor", normed, g("div.Scalar", along, n)))
        found[0] = g("mul.Tensor", grad, scale)
    return in_dtypes_of(g, found, dtype, weight)
