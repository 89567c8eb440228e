"""Pooling: shape rules, and decompositions into element-wise maximum or addition of strided views of the image.

    max_pool2d(f32[1, 3, 8, 8], [2, 2])     maximum of x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2] and
                                            x[..., 1::2, 1::2]

The order is eager's, so sums are bit-identical. If windows extend beyond the image, it is padded.
`adaptive_avg_pool2d` with a 1x1 result never gets here: eager computes a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import compute_dtype
from ...tensors.views.view_maps import Slice
from ..memory_format import CONTIGUOUS, formatted, suggested
from ..operator_record import NoRule, decomposition, fresh, shape, value_decomposition
from .convolution_shape_rules import each

# -- shape rules -------------------------------------------------------------------------------------------------------


def pooled_size(n: int, window: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """The windows along a dimension. With `ceil_mode` the last may extend, but not start, beyond the end."""
    room = n + 2 * padding - dilation * (window - 1) - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= n + padding:
        count -= 1
    if count < 1:
        raise NoRule("a window larger than the input")
    return count


def pooled_shape(
    x: TensorType,
    rank: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | int,
    dilation: Sequence[int] | int,
    ceil_mode: bool,
) -> tuple[int, ...]:
    windows = each(kernel_size, rank)
    steps = each(stride, rank) if stride else windows
    settings = zip(x.shape[-rank:], windows, steps, each(padding, rank), each(dilation, rank), strict=True)
    return (*x.shape[:-rank], *(pooled_size(*of_dim, ceil_mode) for of_dim in settings))


def max_pool_shape(rank: int) -> Callable:
    def rule(
        x: TensorType,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        dilation: Sequence[int] | int = 1,
        ceil_mode: bool = False,
    ) -> tuple[TensorType, TensorType]:
        found = pooled_shape(x, rank, kernel_size, stride, padding, dilation, ceil_mode)
        format = suggested(x) if x.ndim == rank + 2 else CONTIGUOUS
        return formatted(x, found, format), formatted(x, found, format, torch.int64)

    return rule


def avg_pool_shape(rank: int) -> Callable:
    def rule(
        x: TensorType,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> TensorType:
        format = suggested(x) if rank == 2 else CONTIGUOUS
        return formatted(x, pooled_shape(x, rank, kernel_size, stride, padding, 1, ceil_mode), format)

    return rule


for rank in (2, 3):
    shape(f"aten.max_pool{rank}d_with_indices.default")(max_pool_shape(rank))
    shape(f"aten.avg_pool{rank}d.default")(avg_pool_shape(rank))


@shape("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default")
def adaptive_avg_pool2d_shape(x: TensorType, output_size: Sequence[int]) -> TensorType:
    return formatted(x, (*x.shape[:-2], *each(output_size, 2)), suggested(x))


@shape("aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool3d_shape(x: TensorType, output_size: Sequence[int]) -> TensorType:
    return fresh(x, (*x.shape[:-3], *each(output_size, 3)))


@shape("aten.adaptive_max_pool2d.default")
def adaptive_max_pool2d_shape(x: TensorType, output_size: Sequence[int]) -> tuple[TensorType, TensorType]:
    found = (*x.shape[:-2], *each(output_size, 2))
    return formatted(x, found, suggested(x)), formatted(x, found, suggested(x), torch.int64)


@shape("aten.adaptive_max_pool3d.default")
def adaptive_max_pool3d_shape(x: TensorType, output_size: Sequence[int]) -> tuple[TensorType, TensorType]:
    found = (*x.shape[:-3], *each(output_size, 3))
    return fresh(x, found), fresh(x, found, torch.int64)


@shape(
    "aten.max_pool2d_with_indices_backward.default",
    "aten.avg_pool2d_backward.default",
    "aten._adaptive_avg_pool2d_backward.default",
    "aten.adaptive_max_pool2d_backward.default",
    "aten.max_pool3d_with_indices_backward.default",
)
def pool_backward_shape(grad_output: TensorType, x: TensorType, *_: object, **__: object) -> TensorType:
    return formatted(x, x.shape, suggested(x))


@shape(
    "aten.avg_pool3d_backward.default",
    "aten._adaptive_avg_pool3d_backward.default",
    "aten.adaptive_max_pool3d_backward.default",
)
def pool_backward_contiguous_shape(grad_output: TensorType, x: TensorType, *_: object) -> TensorType:
    return fresh(x, x.shape)


# -- decompositions ----------------------------------------------------------------------------------------------------


LARGEST = 32
"""Maximum elements of a window. A larger window needs so many views that eager's loops are as fast."""


Sizes = Sequence[int]


def windows(
    g: Any, x: Any, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool, border: float
) -> list[Any]:
    """For each position in a window, the view of the elements there in all windows."""
    rank, count = len(kernel), 1
    for n in kernel:
        count *= n
    if count > LARGEST or not x.dtype.is_floating_point or not all(x.shape):
        raise NoRule(f"windows of {count} elements of {x.dtype}")
    sizes = x.shape[-rank:]
    lengths = [pooled_size(*of_dim, ceil_mode) for of_dim in zip(sizes, kernel, stride, padding, dilation, strict=True)]
    hanging = [
        (length - 1) * step + far * (n - 1) + 1 - size - before
        for length, step, far, n, size, before in zip(lengths, stride, dilation, kernel, sizes, padding, strict=True)
    ]
    if any(padding) or max(hanging) > 0:
        around = [(before, max(after, 0)) for before, after in zip(padding, hanging, strict=True)]
        x = g("constant_pad_nd", x, [n for pair in reversed(around) for n in pair], border)
    first = x.ndim - rank
    return [
        g.view(x, *(Slice(first + k, at * dilation[k], stride[k], lengths[k]) for k, at in enumerate(place)))
        for place in product(*map(range, kernel))
    ]


@value_decomposition("aten.max_pool2d_with_indices.default")
def max_pool2d(
    g: Any,
    x: Any,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes | int = 0,
    dilation: Sizes | int = 1,
    ceil_mode: bool = False,
) -> Any:
    kernel = each(kernel_size, 2)
    step = each(stride, 2) if stride else kernel
    first, *others = windows(g, x, kernel, step, each(padding, 2), each(dilation, 2), ceil_mode, float("-inf"))
    for other in others:
        first = g("maximum", first, other)
    return first


@decomposition("aten.avg_pool2d.default")
def avg_pool2d(
    g: Any,
    x: Any,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    kernel = each(kernel_size, 2)
    step, around = each(stride, 2) if stride else kernel, each(padding, 2)
    if any(around) and not count_include_pad and divisor_override is None:
        raise NoRule("means of fewer elements at the border")
    if (
        ceil_mode
        and divisor_override is None
        and any(
            (pooled_size(n, size, by, before, 1, True) - 1) * by + size > n + 2 * before
            for n, size, by, before in zip(x.shape[-2:], kernel, step, around, strict=True)
        )
    ):
        raise NoRule("means of fewer elements where windows hang over the border")
    wide = g.convert(x, compute_dtype(x.dtype))
    first, *others = windows(g, wide, kernel, step, around, (1, 1), ceil_mode, 0.0)
    for other in others:
        first = g("add.Tensor", first, other)
    return g.convert(g("div.Scalar", first, divisor_override or kernel[0] * kernel[1]), x.dtype)


@decomposition("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(g: Any, x: Any, output_size: Sizes) -> Any:
    """Covers windows of equal size."""
    sizes = each(output_size, 2)
    if not all(sizes) or any(n % size for n, size in zip(x.shape[-2:], sizes, strict=True)):
        raise NoRule("windows of several sizes")
    kernel = [n // size for n, size in zip(x.shape[-2:], sizes, strict=True)]
    return avg_pool2d(g, x, kernel)
