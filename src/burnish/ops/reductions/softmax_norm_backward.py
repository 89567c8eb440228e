"""Decompositions of softmax and norm gradients, and of batch norm in training, into primitive reductions.

    softmax_backward(grad, y) = y * (grad - sum(grad * y))

Norms: with h = (x - mean) * rstd and u = grad * weight, the gradient of x is
rstd * (u - mean(u) - h * mean(u * h)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...tensors.views.view_maps import Slice
from ..operator_record import NoRule, decomposition
from .softmax_norm_decomposition import affine, batch_norm_inference, count, floats, normalized_dims, widened

Mask = Sequence[bool]


def mean(g: Any, x: Any, dims: tuple[int, ...]) -> Any:
    return g("div.Scalar", g.reduce("sum", x, dims), float(count(x, dims)))


# -- softmax -----------------------------------------------------------------------------------------------------------


@decomposition("aten._softmax_backward_data.default")
def softmax_backward(g: Any, grad: Any, y: Any, dim: int, input_dtype: torch.dtype) -> Any:
    floats(y)
    if not y.ndim:
        raise NoRule("no dimension")
    grad, y = widened(g, grad), widened(g, y)
    total = g.reduce("sum", g("mul.Tensor", grad, y), normalized_dims(y, dim))
    return g.convert(g("mul.Tensor", y, g("sub.Tensor", grad, total)), input_dtype)


@decomposition("aten._log_softmax_backward_data.default")
def log_softmax_backward(g: Any, flowing: Any, y: Any, dim: int, input_dtype: torch.dtype) -> Any:
    floats(y)
    if not y.ndim:
        raise NoRule("no dimension")
    grad, y = widened(g, flowing), widened(g, y)
    total = g.row_sums.get(flowing) if normalized_dims(y, dim) == (y.ndim - 1,) else None
    total = g.reduce("sum", grad, normalized_dims(y, dim)) if total is None else widened(g, total)
    return g.convert(g("sub.Tensor", grad, g("mul.Tensor", g("exp", y), total)), input_dtype)


# -- normalisations of rows --------------------------------------------------------------------------------------------


def through_norm(g: Any, u: Any, normed: Any, rstd: Any, dims: tuple[int, ...], centre: bool = True) -> Any:
    """The gradient of the normalized input; with `centre` off for a norm that does not subtract the mean."""
    along = g("mul.Tensor", normed, mean(g, g("mul.Tensor", u, normed), dims))
    rest = g("sub.Tensor", g("sub.Tensor", u, mean(g, u, dims)) if centre else u, along)
    return g("mul.Tensor", rest, rstd)


@decomposition("aten.native_layer_norm_backward.default")
def layer_norm_backward(
    g: Any,
    grad: Any,
    x: Any,
    normalized_shape: Sequence[int],
    average: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    output_mask: Mask,
) -> Any:
    floats(x)
    dtype = x.dtype
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    outer = tuple(range(x.ndim - len(normalized_shape)))
    if not dims or not outer:
        raise NoRule("one row")
    grad, average, rstd = (widened(g, part) for part in (grad, average, rstd))
    normed = g("mul.Tensor", g("sub.Tensor", widened(g, x), average), rstd)
    u = grad if weight is None else g("mul.Tensor", grad, widened(g, weight))
    found = [through_norm(g, u, normed, rstd, dims) if output_mask[0] else None]
    found += parameters_of_affine(g, grad, normed, outer, list(normalized_shape), output_mask[1:])
    return tuple(part if part is None else g.convert(part, dtype) for part in found)


@decomposition("aten._fused_rms_norm_backward.default")
def rms_norm_backward(
    g: Any, grad: Any, x: Any, normalized_shape: Sequence[int], rstd: Any, weight: Any, output_mask: Mask
) -> Any:
    floats(x)
    dtype = x.dtype
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    outer = tuple(range(x.ndim - len(normalized_shape)))
    if not dims or not outer:
        raise NoRule("one row")
    grad, rstd = widened(g, grad), widened(g, rstd)
    normed = g("mul.Tensor", widened(g, x), rstd)
    u = grad if weight is None else g("mul.Tensor", grad, widened(g, weight))
    found = [through_norm(g, u, normed, rstd, dims, centre=False) if output_mask[0] else None]
    found += parameters_of_affine(g, grad, normed, outer, list(normalized_shape), (output_mask[1], False))[:1]
    return tuple(part if part is None else g.convert(part, dtype) for part in found)


def parameters_of_affine(
    g: Any, grad: Any, normed: Any, outer: tuple[int, ...], shape: list[int], wanted: Mask
) -> list[Any]:
    """The gradients of a weight and a bias that are broadcast over `outer`."""
    return [
        g.reshape(g.reduce("sum", g("mul.Tensor", grad, normed), outer), shape) if wanted[0] else None,
        g.reshape(g.reduce("sum", grad, outer), shape) if wanted[1] else None,
    ]


@decomposition("aten.native_group_norm_backward.default")
def group_norm_backward(
    g: Any,
    grad: Any,
    x: Any,
    average: Any,
    rstd: Any,
    weight: Any,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Mask,
) -> Any:
    floats(x)
    shape, dtype, size = x.shape, x.dtype, (N, group, C // group, HxW)
    rows, u = (g.reshape(widened(g, part), size) for part in (x, grad))
    average, rstd = (g.reshape(widened(g, part), (N, group, 1, 1)) for part in (average, rstd))
    normed = g("mul.Tensor", g("sub.Tensor", rows, average), rstd)
    found = [None, *parameters_of_affine(g, u, normed, (0, 3), [C], output_mask[1:])]
    if output_mask[0]:
        if weight is not None:
            u = g("mul.Tensor", u, g.reshape(widened(g, weight), (1, group, C // group, 1)))
        found[0] = g.reshape(through_norm(g, u, normed, rstd, (2, 3)), shape)
    return tuple(part if part is None else g.convert(part, dtype) for part in found)


# -- batch norm --------------------------------------------------------------------------------------------------------


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
    dtypes = (dtype, *(dtype if weight is None else weight.dtype,) * 2)
    return tuple(part if part is None else g.convert(part, to) for part, to in zip(found, dtypes, strict=True))
