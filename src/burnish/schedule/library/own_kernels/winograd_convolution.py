"""Winograd's form of a 3 x 3 convolution with frozen weights: 16 multiplications for 4 pixels in place of 36.

    own_winograd(spec, epilogue)      None where it does not fit; `why_not_winograd` says why

A tile of 4 x 4 pixels gives 2 x 2 pixels of the result:

    V = B'dB          of each tile and channel: sums of pixels, "the transformed tile"
    M[k] = V[k] U[k]  16 products of matrices: [tiles, channels] x [channels, outputs]
    Y = A'MA + bias   of each tile and output; residual and epilogue are computed there, as in `own packed`

U = GgG' is packed once (`tensors.weight_packing.TransformedPanels`). The sums of pixels need no multiplication, and the
factors are 1, 1/2 and 1/4, so the rounding error is that of a direct sum where the weights of a window are of similar
size: packing refuses others. Larger tiles would save more and round more.

An infinite pixel would become NaN here, as infinity less infinity. So a tile whose result is not finite, or far smaller
than its products, is computed again, as a direct sum over the weight itself. Tables and scratch memory hold a strip of
tiles at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ....ops.scalar_ir import Scalar
from ....tensors.tensor_types import TensorType
from ....tensors.weight_packing import TransformedPanels
from ...layouts.channels_last_strides import channels_last_stride
from ..call_specs import ConvSpec
from ..candidate import SCRATCH, Candidate, from_steps
from . import matmul_tiling_and_packing
from .matmul_tiling_and_packing import NativeCall, Product, Sum, in_chunks, places_of_row, runs_of
from .own_matmul_and_convolution import is_dense_channels_last, why_not_images

NAME = "own winograd"

POSITIONS = 16
"""Of a tile, and so the number of products."""

STRIP_BYTES = 8 << 20
"""The most memory of the transformed tiles and products of one strip."""

MOST_STRIPS = 64

FEWEST_CHANNELS = 32
"""With fewer inputs or outputs the transforms take longer than what the products save."""


RUN = 32
"""Most numbers that are summed in a register. The transforms cost accuracy, and shorter runs give it back: with 128 the
error was 1.6 times that of eager's contiguous convolution. With 32 it is the same, for 3 % of the time."""


@dataclass(frozen=True, slots=True)
class Winograd:
    """A strip of rows of tiles, counted over all images."""

    x: TensorType
    """In dense channels-last layout."""
    weight: TensorType
    output_shape: tuple[int, ...]
    padding: tuple[int, ...]
    first: int
    rows: int
    has_bias: bool
    has_residual: bool
    epilogue: Scalar | None

    @property
    def tile_columns(self) -> int:
        return -(-self.output_shape[3] // 2)

    @property
    def tile_rows(self) -> int:
        """Of an image."""
        return -(-self.output_shape[2] // 2)

    @property
    def tiles(self) -> int:
        return self.rows * self.tile_columns


def why_not_winograd(spec: ConvSpec) -> str | None:
    why = why_not_images(spec)
    if why is not None:
        return why
    if spec.x.dtype is not torch.float32:
        return "half precision is rounded too much"
    if spec.weight.shape[2:] != (3, 3) or spec.groups > 1:
        return "the window is not 3 x 3"
    if set(spec.stride) != {1} or set(spec.dilation) != {1}:
        return "the window has steps"
    shape = matmul_tiling_and_packing.shape_here()
    assert shape is not None
    for channels in (spec.x.shape[1], spec.output_channels):
        if channels % shape.lanes or channels < FEWEST_CHANNELS:
            return f"{channels} channels are not whole vectors, or too few"
    if len(strips(spec, None)) > MOST_STRIPS:
        return "the image is too large"
    return None


def strips(spec: ConvSpec, epilogue: Scalar | None) -> list[Winograd]:
    """As few strips as fit into the memory, of nearly equal size."""
    output = spec.output_shape
    down, across = output[0] * -(-output[2] // 2), -(-output[3] // 2)
    row_bytes = 4 * POSITIONS * across * (spec.x.shape[1] + spec.output_channels)
    x = replace(spec.x, stride=channels_last_stride(spec.x.shape))
    added = (spec.bias is not None, spec.residual is not None, epilogue)
    made, first = [], 0
    for rows in matmul_tiling_and_packing.split_evenly(down, max(STRIP_BYTES // row_bytes, 1)):
        made.append(Winograd(x, spec.weight, output, spec.padding, first, rows, *added))
        first += rows
    return made


def product_of(strip: Winograd) -> Product:
    """The products of all positions."""
    shape = matmul_tiling_and_packing.shape_here()
    assert shape is not None
    tiles, channels, outputs = strip.tiles, strip.x.shape[1], strip.output_shape[1]
    places = places_of_row(tiles, 0, 0, channels, outputs, shape.half)
    return Product(
        outputs,
        channels,
        (Sum(channels, outputs, runs_of([0], channels, shorter=RUN)),),
        in_chunks(places, channels, outputs, channels * outputs),
        shape,
        batches=POSITIONS,
        x_batch=tiles * channels,
        out_batch=tiles * outputs,
        shorter_run=RUN,
    )


def own_winograd(spec: ConvSpec, epilogue: Scalar | None = None) -> Candidate | None:
    if why_not_winograd(spec) is not None:
        return None
    found = strips(spec, epilogue)
    most, channels, outputs = max(strip.tiles for strip in found), spec.x.shape[1], spec.output_channels
    is_copied = not is_dense_channels_last(spec.x)
    tiles_at = 4 * spec.x.numel if is_copied else 0
    sums_at = tiles_at + 4 * POSITIONS * most * channels
    spare_at = sums_at + 4 * POSITIONS * most * outputs
    image = (SCRATCH, 0) if is_copied else ("x", 0)

    def steps() -> list[NativeCall]:
        made, maker = [], matmul_tiling_and_packing.maker()
        if is_copied:
            size = spec.x.shape[2], spec.x.shape[3]
            made.append(maker.padding(spec.x, size, (0, 0)).moved(out=(SCRATCH, 0)))
        for strip in found:
            before, after = maker.winograd(strip)
            made.append(before.moved(x=image, out=(SCRATCH, tiles_at)))
            product = maker.product(product_of(strip))
            made.append(product.moved(x=(SCRATCH, tiles_at), out=(SCRATCH, sums_at)))
            made.append(after.moved(x=(SCRATCH, sums_at), image=image, spare=(SCRATCH, spare_at)))
        return made

    output = TensorType(spec.output_shape, channels_last_stride(spec.output_shape), spec.x.dtype, spec.x.device)
    panels = matmul_tiling_and_packing.panels([product_of(found[0])], spec.bias is not None)
    prepared = ("packed", "bias") if spec.bias is not None else ("packed",)
    return from_steps(
        NAME,
        spec,
        ("x", "weight", *prepared, *(["residual"] if spec.residual is not None else [])),
        output,
        steps,
        scratch=spare_at + 4 * outputs,
        prepare=TransformedPanels(panels),
        prepared=prepared,
    )
