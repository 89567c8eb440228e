"""Shape rules of pooling, upsampling and pixel shuffling.

    max_pool2d_with_indices(f32[1, 3, 8, 8], [2, 2])     f32[1, 3, 4, 4], i64[1, 3, 4, 4]

`adaptive_avg_pool2d` with a 1x1 result never gets here: eager computes a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ...tensors.tensor_types import TensorType
from ..memory_format import CONTIGUOUS, formatted, suggested
from ..operator_record import NoRule, fresh, shape
from .convolution_shape_rules import each


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


def max_pool(rank: int) -> Callable:
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


def avg_pool(rank: int) -> Callable:
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
    shape(f"aten.max_pool{rank}d_with_indices.default")(max_pool(rank))
    shape(f"aten.avg_pool{rank}d.default")(avg_pool(rank))


@shape("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(x: TensorType, output_size: Sequence[int]) -> TensorType:
    return formatted(x, (*x.shape[:-2], *each(output_size, 2)), suggested(x))


@shape("aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool3d(x: TensorType, output_size: Sequence[int]) -> TensorType:
    return fresh(x, (*x.shape[:-3], *each(output_size, 3)))


@shape("aten.adaptive_max_pool2d.default")
def adaptive_max_pool2d(x: TensorType, output_size: Sequence[int]) -> tuple[TensorType, TensorType]:
    found = (*x.shape[:-2], *each(output_size, 2))
    return formatted(x, found, suggested(x)), formatted(x, found, suggested(x), torch.int64)


@shape("aten.adaptive_max_pool3d.default")
def adaptive_max_pool3d(x: TensorType, output_size: Sequence[int]) -> tuple[TensorType, TensorType]:
    found = (*x.shape[:-3], *each(output_size, 3))
    return fresh(x, found), fresh(x, found, torch.int64)


@shape(
    "aten.max_pool2d_with_indices_backward.default",
    "aten.avg_pool2d_backward.default",
    "aten._adaptive_avg_pool2d_backward.default",
    "aten.adaptive_max_pool2d_backward.default",
    "aten.max_pool3d_with_indices_backward.default",
)
def pool_backward(grad_output: TensorType, x: TensorType, *_: object, **__: object) -> TensorType:
    return formatted(x, x.shape, suggested(x))


@shape(
    "aten.avg_pool3d_backward.default",
    "aten._adaptive_avg_pool3d_backward.default",
    "aten.adaptive_max_pool3d_backward.default",
)
def pool_backward_contiguous(grad_output: TensorType, x: TensorType, *_: object) -> TensorType:
    return fresh(x, x.shape)


# -- resizing ----------------------------------------------------------------------------------------------------------


def resized(rank: int) -> Callable:
    def rule(x: TensorType, output_size: Sequence[int], *_: object, **__: object) -> TensorType:
        return formatted(x, (*x.shape[:2], *each(output_size, rank)), suggested(x))

    return rule


shape("aten.upsample_nearest1d.default", "aten._upsample_nearest_exact1d.default", "aten.upsample_linear1d.default")(
    resized(1)
)
shape(
    "aten.upsample_nearest2d.default",
    "aten._upsample_nearest_exact2d.default",
    "aten.upsample_bilinear2d.default",
    "aten.upsample_bicubic2d.default",
    "aten._upsample_bilinear2d_aa.default",
    "aten._upsample_bicubic2d_aa.default",
)(resized(2))
shape("aten.upsample_nearest3d.default", "aten._upsample_nearest_exact3d.default", "aten.upsample_trilinear3d.default")(
    resized(3)
)


@shape(
    "aten.upsample_nearest2d_backward.default",
    "aten._upsample_nearest_exact2d_backward.default",
    "aten.upsample_bilinear2d_backward.default",
    "aten._upsample_bilinear2d_aa_backward.default",
    "aten.upsample_trilinear3d_backward.default",
)
def resized_backward(
    grad_output: TensorType, output_size: Sequence[int], input_size: Sequence[int], *_: object, **__: object
) -> TensorType:
    return formatted(grad_output, input_size, suggested(grad_output))


@shape(
    "aten.upsample_nearest1d_backward.default",
    "aten._upsample_nearest_exact1d_backward.default",
    "aten.upsample_linear1d_backward.default",
    "aten.upsample_bicubic2d_backward.default",
    "aten._upsample_bicubic2d_aa_backward.default",
    "aten.upsample_nearest3d_backward.default",
    "aten._upsample_nearest_exact3d_backward.default",
)
def resized_backward_contiguous(
    grad_output: TensorType, output_size: Sequence[int], input_size: Sequence[int], *_: object, **__: object
) -> TensorType:
    return fresh(grad_output, input_size)


@shape("aten.max_unpool2d.default")
def max_unpool2d(x: TensorType, indices: TensorType, output_size: Sequence[int]) -> TensorType:
    return formatted(x, (*x.shape[:-2], *output_size), suggested(x))


@shape("aten.max_unpool3d.default")
def max_unpool3d(
    x: TensorType, indices: TensorType, output_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> TensorType:
    return fresh(x, (*x.shape[:-3], *output_size))


@shape("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(x: TensorType, grid: TensorType, *_: object) -> TensorType:
    return fresh(x, (*x.shape[:2], *grid.shape[1:-1]))


@shape("aten.im2col.default")
def im2col(
    x: TensorType, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> TensorType:
    """Each window becomes a column of the result."""
    rows, columns = pooled_shape(x, 2, kernel_size, stride, padding, dilation, False)[-2:]
    height, width = each(kernel_size, 2)
    return fresh(x, (*x.shape[:-3], x.shape[-3] * height * width, rows * columns))


@shape("aten.col2im.default")
def col2im(x: TensorType, output_size: Sequence[int], kernel_size: Sequence[int], *_: object) -> TensorType:
    height, width = each(kernel_size, 2)
    return fresh(x, (*x.shape[:-2], x.shape[-2] // (height * width), *output_size))


@shape("aten.pixel_shuffle.default")
def pixel_shuffle(x: TensorType, upscale_factor: int) -> TensorType:
    *batch, channels, rows, columns = x.shape
    sizes = (*batch, channels // upscale_factor**2, rows * upscale_factor, columns * upscale_factor)
    return formatted(x, sizes, suggested(x))


@shape("aten.pixel_unshuffle.default")
def pixel_unshuffle(x: TensorType, downscale_factor: int) -> TensorType:
    *batch, channels, rows, columns = x.shape
    sizes = (*batch, channels * downscale_factor**2, rows // downscale_factor, columns // downscale_factor)
    return formatted(x, sizes, suggested(x))


@shape("aten.channel_shuffle.default")
def channel_shuffle(x: TensorType, groups: int) -> TensorType:
    return formatted(x, x.shape, suggested(x))
