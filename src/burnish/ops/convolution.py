"""Convolutions: library calls. Here, the types of their results.

    convolution(f32[1, 3, 8, 8], f32[4, 3, 3, 3], None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)     f32[1, 4, 6, 6]

The result is laid out channels last where the input or the weight is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..tensors.types import TensorType
from .memory_format import CONTIGUOUS, formatted, suggested
from .record import NoRule, shape


def each(option: Sequence[int] | int, rank: int) -> Sequence[int]:
    """One number stands for all dimensions."""
    if isinstance(option, int):
        return (option,) * rank
    return tuple(option) * rank if len(option) == 1 else option


def convolved_shape(
    x: TensorType, weight: TensorType, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> tuple[int, ...]:
    rank = weight.ndim - 2
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


@shape("aten.convolution.default", "aten.convolution_overrideable.default", "aten._convolution.default")
def convolution(
    x: TensorType, weight: TensorType, bias: TensorType | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, *_: object,
) -> TensorType:
    if x.ndim != weight.ndim:
        raise NoRule("a convolution without a batch")
    found = convolved_shape(x, weight, stride, padding, dilation, transposed, output_padding, groups)
    format = suggested(x)
    return formatted(x, found, suggested(weight) if format is CONTIGUOUS else format)


@shape("aten.convolution_backward.default")
def convolution_backward(
    grad_output: TensorType, x: TensorType, weight: TensorType, bias_sizes: Sequence[int] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[TensorType | None, ...]:
    format = suggested(x)
    format = suggested(weight) if format is CONTIGUOUS else format
    return (
        formatted(x, x.shape, format) if output_mask[0] else None,
        formatted(weight, weight.shape, format) if output_mask[1] else None,
        formatted(grad_output, grad_output.shape[1:2], CONTIGUOUS) if output_mask[2] else None,
    )
