"""Shape rules of upsampling, unpooling, unfolding and pixel shuffling.

upsample_nearest2d(f32[1, 3, 8, 8], [16, 16], None, None)     f32[1, 3, 16, 16]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tensors.tensor_types import TensorType
from ..memory_format import formatted, suggested
from ..operator_record import Arguments, call_shape, fresh, shape
from .convolution_shape_rules import each
from .pooling import pooled_shape


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


call_shape(
    "aten.upsample_nearest2d_backward.default",
    "aten._upsample_nearest_exact2d_backward.default",
    "aten.upsample_bilinear2d_backward.default",
    "aten._upsample_bilinear2d_aa_backward.default",
    "aten.upsample_trilinear3d_backward.default",
)(lambda a: formatted(a.grad_output, a.input_size, suggested(a.grad_output)))
call_shape(
    "aten.upsample_nearest1d_backward.default",
    "aten._upsample_nearest_exact1d_backward.default",
    "aten.upsample_linear1d_backward.default",
    "aten.upsample_bicubic2d_backward.default",
    "aten._upsample_bicubic2d_aa_backward.default",
    "aten.upsample_nearest3d_backward.default",
    "aten._upsample_nearest_exact3d_backward.default",
)(lambda a: fresh(a.grad_output, a.input_size))
call_shape("aten.max_unpool2d.default")(
    lambda a: formatted(a.self, (*a.self.shape[:-2], *a.output_size), suggested(a.self))
)
call_shape("aten.max_unpool3d.default")(lambda a: fresh(a.self, (*a.self.shape[:-3], *a.output_size)))
call_shape("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")(
    lambda a: fresh(a.input, (*a.input.shape[:2], *a.grid.shape[1:-1]))
)


@call_shape("aten.im2col.default")
def im2col(call: Arguments) -> TensorType:
    """Each window becomes a column of the result."""
    x, (rows, columns) = call.self, pooled_shape(call, 2)[-2:]
    height, width = each(call.kernel_size, 2)
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


call_shape("aten.channel_shuffle.default")(lambda a: formatted(a.self, a.self.shape, suggested(a.self)))
