"""Shape rules of convolutions, with the memory formats that eager's kernels choose.

    convolution(f32[1, 3, 8, 8], f32[4, 3, 3, 3], None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)     f32[1, 4, 6, 6]

The result is channels last if the input or the weight is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...foundation.torch_private import get_mkldnn_enabled
from ...tensors.tensor_types import TensorType
from ..memory_format import CHANNELS_LAST, CHANNELS_LAST_3D, CONTIGUOUS, formatted, suggested
from ..operator_record import Arguments, NoRule, call_shape, fresh, masked
from ..shapes.views import squeeze_type, unsqueeze_type


def each(option: Sequence[int] | int, rank: int) -> Sequence[int]:
    """The option for each dimension: one number applies to all."""
    if isinstance(option, int):
        return (option,) * rank
    return tuple(option) * rank if len(option) == 1 else option


def convolved_shape(x: TensorType, weight: TensorType, call: Arguments) -> tuple[int, ...]:
    rank, transposed = weight.ndim - 2, call.transposed
    if x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * call.groups):
        raise NoRule(f"a convolution of {x.shape[1]} channels by a weight of {list(weight.shape)}")
    options = (each(option, rank) for option in (call.stride, call.padding, call.dilation, call.output_padding))
    sizes = []
    for n, window, stride, padding, dilation, more in zip(x.shape[-rank:], weight.shape[2:], *options, strict=True):
        span = dilation * (window - 1) + 1
        if transposed:
            sizes.append((n - 1) * stride - 2 * padding + span + more)
        else:
            sizes.append((n + 2 * padding - span) // stride + 1)
    if min(sizes) < 0:
        raise NoRule(f"a window larger than {x}")
    channels = weight.shape[1] * call.groups if transposed else weight.shape[0]
    return (x.shape[0], channels, *sizes)


def convolution_format(x: TensorType, weight: TensorType, call: Arguments) -> torch.memory_format:
    """The format of eager's kernel and its result: the input's or, if that is contiguous, the weight's."""
    format = suggested(x)
    if format is CONTIGUOUS:
        format = suggested(weight)
    return CONTIGUOUS if format is CHANNELS_LAST_3D and not taken_by_onednn(x, weight, call) else format


def taken_by_onednn(x: TensorType, weight: TensorType, call: Arguments) -> bool:
    """Whether eager chooses oneDNN on a CPU, as in ATen's `ConvParams::use_mkldnn`.

    Only oneDNN returns channels-last volumes. Small problems use ATen's own kernels.
    """
    if not x.is_on_host:
        raise NoRule("another device chooses by other rules")
    if not get_mkldnn_enabled():
        return False
    rank = x.ndim - 2
    steps, spreads = each(call.stride, rank), each(call.dilation, rank)
    larger = any(more >= step for more, step in zip(each(call.output_padding, rank), steps, strict=True))
    if call.transposed and larger:
        return False
    if x.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if x.dtype == torch.float16:
        return torch.ops.mkldnn._is_mkldnn_fp16_supported()
    window = weight.shape[-2:]
    quick = max(steps) > 1 or max(spreads) > 1 or x.shape[0] >= 16 or window != (1, 1) or torch.get_num_threads() > 1
    large = call.groups > 1 or min(window) > 3 or x.shape[0] > 1 or math.prod(x.shape[:4]) > 20480
    return x.dtype == torch.float32 and quick and large


@call_shape("aten.convolution.default", "aten._convolution.default")
def convolution(call: Arguments) -> TensorType:
    x, weight = call.input, call.weight
    if x.ndim != weight.ndim:
        raise NoRule("a convolution without a batch")
    if 0 in x.shape or 0 in weight.shape:
        raise NoRule("a convolution of nothing: eager's result has shapes of its own")
    found = fresh(x, convolved_shape(x, weight, call))
    if x.ndim == 3:
        return of_image(joined_groups(as_row(x), as_row(weight), as_row(found), format_of_rows(x, weight), call))
    return joined_groups(x, weight, found, convolution_format(x, weight, call), call)


def joined_groups(
    x: TensorType, weight: TensorType, result: TensorType, format: torch.memory_format, call: Arguments
) -> TensorType:
    """The result in this format. ATen's own kernels convolve one group at a time and concatenate in the format inferred
    from the strides: with single elements, contiguous."""
    if call.groups > 1 and not taken_by_onednn(x, weight, call):
        n, channels, *window = result.shape
        format = suggested(formatted(x, (n, channels // call.groups, *window), format))
    return formatted(x, result.shape, format)


def as_row(x: TensorType) -> TensorType:
    """A 1d convolution is computed as a 2d one with a single row."""
    return unsqueeze_type(x, 2)


def format_of_rows(x: TensorType, weight: TensorType) -> torch.memory_format:
    """Eager makes the input contiguous, but not the weight. A tensor that is already contiguous keeps its strides,
    which may also fit channels last if dimensions have size 1."""
    format = suggested(as_row(x)) if x.is_contiguous else CONTIGUOUS
    return suggested(as_row(weight)) if format is CONTIGUOUS else format


def of_image(x: TensorType) -> TensorType:
    return squeeze_type(x, 2)


@call_shape("aten.convolution_backward.default")
def convolution_backward(call: Arguments) -> tuple[TensorType | None, ...]:
    """The bias gradient alone has no rule: oneDNN's kernels return the weight gradient too."""
    grad_output, x, weight = call.grad_output, call.input, call.weight
    if call.output_mask[2] and not call.output_mask[1]:
        raise NoRule("a bias's gradient alone")
    if x.ndim == 3:
        format = format_of_rows(x, weight)
        if format is not suggested(as_row(weight)) and not taken_by_onednn(as_row(x), as_row(weight), call):
            raise NoRule("ATen's own kernels lay gradients out case by case")
        grad_x, grad_weight = (
            of_image(formatted(grad_output, as_row(like).shape, format))
            if format is not CONTIGUOUS
            else fresh(grad_output, like.shape)
            for like in (x, weight)
        )
    else:
        format = convolution_format(x, weight, call)
        if format is CHANNELS_LAST and not taken_by_onednn(x, weight, call):
            raise NoRule("ATen's own kernels lay gradients out case by case")
        grad_x, grad_weight = formatted(x, x.shape, format), formatted(weight, weight.shape, format)
    return masked((grad_x, grad_weight, fresh(grad_output, grad_output.shape[1:2])), call.output_mask)
