"""Pooling: shape rules, and decompositions into element-wise maximum or addition of strided views of the image.

    max_pool2d(f32[1, 3, 8, 8], [2, 2])     maximum of x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2] and
                                            x[..., 1::2, 1::2]

The order is eager's, so sums are bit-identical. If windows extend beyond the image, it is padded.
`adaptive_avg_pool2d` with a 1x1 result never gets here: eager computes a mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import compute_dtype
from ...tensors.views.view_maps import Slice
from ..memory_format import CONTIGUOUS, formatted, suggested
from ..operator_record import (
    Arguments,
    NoRule,
    arguments_of,
    call_decomposition,
    call_shape,
    call_value_decomposition,
    decomposition,
    fresh,
    shape,
)
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


def pooled_shape(call: Arguments, rank: int) -> tuple[int, ...]:
    """Of pooling, and of `im2col`."""
    sizes = call.self.shape
    return (
        *sizes[:-rank],
        *(pooled_size(*of_dim) for of_dim in zip(sizes[-rank:], *windows_of(call, rank), strict=True)),
    )


def windows_of(call: Arguments, rank: int) -> tuple[Sequence[int], ...]:
    """For each dimension: size, stride, padding and dilation of the windows, and whether the last may extend beyond
    the end."""
    size = each(call.kernel_size, rank)
    stride = each(call.stride, rank) if call.stride else size
    dilation, ceil_mode = getattr(call, "dilation", 1), getattr(call, "ceil_mode", False)
    return size, stride, each(call.padding, rank), each(dilation, rank), (ceil_mode,) * rank


def max_pool_shape(rank: int, call: Arguments) -> tuple[TensorType, TensorType]:
    x, found = call.self, pooled_shape(call, rank)
    format = suggested(x) if x.ndim == rank + 2 else CONTIGUOUS
    return formatted(x, found, format), formatted(x, found, format, torch.int64)


def avg_pool_shape(rank: int, call: Arguments) -> TensorType:
    return formatted(call.self, pooled_shape(call, rank), suggested(call.self) if rank == 2 else CONTIGUOUS)


for rank in (2, 3):
    call_shape(f"aten.max_pool{rank}d_with_indices.default")(partial(max_pool_shape, rank))
    call_shape(f"aten.avg_pool{rank}d.default")(partial(avg_pool_shape, rank))


call_shape("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default")(
    lambda a: formatted(a.self, (*a.self.shape[:-2], *each(a.output_size, 2)), suggested(a.self))
)
call_shape("aten._adaptive_avg_pool3d.default")(lambda a: fresh(a.self, (*a.self.shape[:-3], *each(a.output_size, 3))))


@shape("aten.adaptive_max_pool2d.default")
def adaptive_max_pool2d_shape(x: TensorType, output_size: Sequence[int]) -> tuple[TensorType, TensorType]:
    found = (*x.shape[:-2], *each(output_size, 2))
    return formatted(x, found, suggested(x)), formatted(x, found, suggested(x), torch.int64)


@shape("aten.adaptive_max_pool3d.default")
def adaptive_max_pool3d_shape(x: TensorType, output_size: Sequence[int]) -> tuple[TensorType, TensorType]:
    found = (*x.shape[:-3], *each(output_size, 3))
    return fresh(x, found), fresh(x, found, torch.int64)


call_shape(
    "aten.max_pool2d_with_indices_backward.default",
    "aten.avg_pool2d_backward.default",
    "aten._adaptive_avg_pool2d_backward.default",
    "aten.adaptive_max_pool2d_backward.default",
    "aten.max_pool3d_with_indices_backward.default",
)(lambda a: formatted(a.self, a.self.shape, suggested(a.self)))
call_shape(
    "aten.avg_pool3d_backward.default",
    "aten._adaptive_avg_pool3d_backward.default",
    "aten.adaptive_max_pool3d_backward.default",
)(lambda a: fresh(a.self, a.self.shape))


# -- decompositions ----------------------------------------------------------------------------------------------------


LARGEST = 32
"""Maximum elements of a window. A larger window needs so many views that eager's loops are as fast."""


Sizes = Sequence[int]


def windows(
    g: Any, x: Any, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_modes: Sizes, border: float
) -> list[Any]:
    """For each position in a window, the view of the elements there in all windows."""
    rank, count = len(kernel), 1
    for n in kernel:
        count *= n
    if count > LARGEST or not x.dtype.is_floating_point or not all(x.shape):
        raise NoRule(f"windows of {count} elements of {x.dtype}")
    sizes = x.shape[-rank:]
    options = zip(sizes, kernel, stride, padding, dilation, ceil_modes, strict=True)
    lengths = [pooled_size(*of_dim) for of_dim in options]
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


@call_value_decomposition("aten.max_pool2d_with_indices.default")
def max_pool2d(g: Any, call: Arguments) -> Any:
    first, *others = windows(g, call.self, *windows_of(call, 2), float("-inf"))
    for other in others:
        first = g("maximum", first, other)
    return first


@call_decomposition("aten.avg_pool2d.default")
def avg_pool2d(g: Any, call: Arguments) -> Any:
    x, divisor = call.self, call.divisor_override
    kernel, step, around, *rest = windows_of(call, 2)
    if any(around) and not call.count_include_pad and divisor is None:
        raise NoRule("means of fewer elements at the border")
    if (
        call.ceil_mode
        and divisor is None
        and any(
            (pooled_size(n, size, by, before, 1, True) - 1) * by + size > n + 2 * before
            for n, size, by, before in zip(x.shape[-2:], kernel, step, around, strict=True)
        )
    ):
        raise NoRule("means of fewer elements where windows hang over the border")
    wide = g.convert(x, compute_dtype(x.dtype))
    first, *others = windows(g, wide, kernel, step, around, *rest, 0.0)
    for other in others:
        first = g("add.Tensor", first, other)
    return g.convert(g("div.Scalar", first, divisor or kernel[0] * kernel[1]), x.dtype)


@decomposition("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(g: Any, x: Any, output_size: Sizes) -> Any:
    """Covers windows of equal size."""
    sizes = each(output_size, 2)
    if not all(sizes) or any(n % size for n, size in zip(x.shape[-2:], sizes, strict=True)):
        raise NoRule("windows of several sizes")
    kernel = [n // size for n, size in zip(x.shape[-2:], sizes, strict=True)]
    return avg_pool2d(g, arguments_of("aten.avg_pool2d.default", (x, kernel), {}))
