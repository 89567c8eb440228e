"""Shape rules of convolutions, with the memory formats that eager's kernels choose.

    convolution(f32[1, 3, 8, 8], f32[4, 3, 3, 3], None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)     f32[1, 4, 6, 6]

The result is channels last if the input or the weight is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...tensors.tensor_types import TensorType
from ..memory_format import CHANNELS_LAST, CHANNELS_LAST_3D, CONTIGUOUS, formatted, suggested
from ..operator_record import NoRule, fresh, shape
from ..shapes.views import squeeze_type, unsqueeze_type


def each(option: Sequence[int] | int, rank: int) -> Sequence[int]:
    """The option for each dimension: one number applies to all."""
    if isinstance(option, int):
        return (option,) * rank
    return tuple(option) * rank if len(option) == 1 else option


def convolved_shape(
    x: TensorType,
    weight: TensorType,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> tuple[int, ...]:
    rank = weight.ndim - 2
    if x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups):
        raise NoRule(f"a convolution of {x.shape[1]} channels by a weight of {list(weight.shape)}")
    stride, padding, dilation = each(stride, rank), each(padding, rank), each(dilation, rank)
    output_padding = each(output_padding, rank)
    sizes = []
    for k, (n, window) in enumerate(zip(x.shape[-rank:], weight.shape[2:], strict=True)):
        span = dilation[k] * (window - 1) + 1
        if transposed:
            sizes.append((n - 1) * stride[k] - 2 * padding[k] + span + output_padding[k])
        else:
            sizes.append((n + 2 * padding[k] - span) // stride[k] + 1)
    if min(sizes) < 0:
        raise NoRule(f"a window larger than {x}")
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return (x.shape[0], channels, *sizes)


def convolution_format(
    x: TensorType,
    weight: TensorType,
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.memory_format:
    """The format of eager's kernel and its result: the input's or, if that is contiguous, the weight's."""
    format = suggested(x)
    if format is CONTIGUOUS:
        format = suggested(weight)
    if format is CHANNELS_LAST_3D and not taken_by_onednn(
        x, weight, stride, dilation, transposed, output_padding, groups
    ):
        return CONTIGUOUS
    return format


def taken_by_onednn(
    x: TensorType,
    weight: TensorType,
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> bool:
    """Whether eager chooses oneDNN on a CPU, as in ATen's `ConvParams::use_mkldnn`.

    Only oneDNN returns channels-last volumes. Small problems use ATen's own kernels.
    """
    if x.device.type != "cpu":
        raise NoRule("another device chooses by other rules")
    if not torch._C._get_mkldnn_enabled():
        return False
    rank = x.ndim - 2
    steps, spreads = each(stride, rank), each(dilation, rank)
    larger = any(more >= step for more, step in zip(each(output_padding, rank), steps, strict=True))
    if transposed and larger:
        return False
    if x.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if x.dtype == torch.float16:
        return torch.ops.mkldnn._is_mkldnn_fp16_supported()
    window = weight.shape[-2:]
    quick = max(steps) > 1 or max(spreads) > 1 or x.shape[0] >= 16 or window != (1, 1) or torch.get_num_threads() > 1
    large = groups > 1 or min(window) > 3 or x.shape[0] > 1 or math.prod(x.shape[:4]) > 20480
    return x.dtype == torch.float32 and quick and large


@shape("aten.convolution.default", "aten._convolution.default")
def convolution(
    x: TensorType,
    weight: TensorType,
    bias: TensorType | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: object,
) -> TensorType:
    if x.ndim != weight.ndim:
        raise NoRule("a convolution without a batch")
    if 0 in x.shape or 0 in weight.shape:
        raise NoRule("a convolution of nothing: eager's result has shapes of its own")
    found = convolved_shape(x, weight, stride, padding, dilation, transposed, output_padding, groups)
    how = stride, dilation, transposed, output_padding, groups
    if x.ndim == 3:
        image = joined_groups(as_row(x), as_row(weight), as_row(fresh(x, found)), format_of_rows(x, weight), how)
        return of_image(image)
    return joined_groups(x, weight, fresh(x, found), convolution_format(x, weight, *how), how)


def joined_groups(
    x: TensorType, weight: TensorType, result: TensorType, format: torch.memory_format, how: tuple
) -> TensorType:
    """The result in this format. ATen's own kernels convolve one group at a time and concatenate in the format inferred
    from the strides: with single elements, contiguous."""
    groups = how[-1]
    if groups > 1 and not taken_by_onednn(x, weight, *how):
        n, channels, *window = result.shape
        format = suggested(formatted(x, (n, channels // groups, *window), format))
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


@shape("aten.convolution_backward.default")
def convolution_backward(
    grad_output: TensorType,
    x: TensorType,
    weight: TensorType,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[TensorType | None, ...]:
    """The bias gradient alone has no rule: oneDNN's kernels return the weight gradient too."""
    if output_mask[2] and not output_mask[1]:
        raise NoRule("a bias's gradient alone")
    how = stride, dilation, transposed, output_padding, groups
    if x.ndim == 3:
        format = format_of_rows(x, weight)
        if format is not suggested(as_row(weight)) and not taken_by_onednn(as_row(x), as_row(weight), *how):
            raise NoRule("ATen's own kernels lay gradients out case by case")
        grad_x, grad_weight = (
            of_image(formatted(grad_output, as_row(like).shape, format))
            if format is not CONTIGUOUS
            else fresh(grad_output, like.shape)
            for like in (x, weight)
        )
    else:
        format = convolution_format(x, weight, *how)
        if format is CHANNELS_LAST and not taken_by_onednn(x, weight, *how):
            raise NoRule("ATen's own kernels lay gradients out case by case")
        grad_x, grad_weight = formatted(x, x.shape, format), formatted(weight, weight.shape, format)
    return (
        grad_x if output_mask[0] else None,
        grad_weight if output_mask[1] else None,
        fresh(grad_output, grad_output.shape[1:2]) if output_mask[2] else None,
    )
