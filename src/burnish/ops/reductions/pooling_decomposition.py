"""Decompositions of pooling into element-wise maximum or addition of strided views of the image.

    max_pool2d(f32[1, 3, 8, 8], [2, 2])     maximum of x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2] and
                                            x[..., 1::2, 1::2]

The order is eager's, so sums are bit-identical. If windows extend beyond the image, it is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from ...tensors.type_promotion import compute_dtype
from ...tensors.views.view_maps import Slice
from ..library.convolution_shape_rules import each
from ..library.pooling_resizing_shape_rules import pooled_size
from ..operator_record import NoRule, decomposition, value_decomposition

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
