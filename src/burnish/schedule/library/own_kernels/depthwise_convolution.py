"""Tiling of depthwise convolutions: each channel by itself, vectorized along the channels.

    depthwise_product(spec, epilogue, shape)      of a channels-last x, without a padded copy

An image is covered by regions. In the inside region the whole window is over the image; at each edge and corner only a
part of it is. Each region has its own sum over those window positions. Inside and along the upper and lower edge, tiles
run along rows; along the left and right edge they run down a column.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....ops.scalar_ir import Scalar
from ....tensors.dtypes import NAMES
from ..call_specs import ConvSpec
from .matmul_tiling_and_packing import Product, Shape, Sum, TablePlace, WeightRun, in_chunks, places_of_row


def why_not_depthwise(spec: ConvSpec) -> str | None:
    channels = spec.x.shape[1]
    if spec.groups != channels or spec.weight.shape[0] != channels or channels == 1:
        return "groups of several channels"
    if any(not window for axis in range(2) for _, window in regions(spec, axis)):
        return "some windows lie beside the image"
    return None


def depthwise_product(spec: ConvSpec, epilogue: Scalar | None, shape: Shape) -> Product:
    images, channels, height, width = spec.x.shape
    rows, columns = spec.output_shape[2:]
    sums: dict[Sum, int] = {}
    places: list[TablePlace] = []
    for image in range(images):
        for y_range, y_window in regions(spec, 0):
            for x_range, x_window in regions(spec, 1):
                places += _places(spec, image, y_range, x_range, y_window, x_window, sums, shape)
    # Neighbours in the image are adjacent in the table: what they read is in a cache.
    places.sort(key=lambda place: place.out[0])
    read, weight = channels * spec.stride[0] * spec.stride[1], spec.weight.numel
    return Product(
        channels,
        spec.weight.shape[2] * spec.weight.shape[3],
        tuple(sums),
        in_chunks(places, read, channels, weight, item=spec.x.dtype.itemsize),
        shape,
        *(spec.bias is not None, spec.residual is not None, epilogue),
        is_depthwise=True,
        dtype=NAMES[spec.x.dtype],
        result=NAMES[spec.x.dtype],
    )


def regions(spec: ConvSpec, axis: int) -> Iterator[tuple[range, range]]:
    """Along an axis: ranges of outputs for which the same part of the window is over the image, and that part. The
    inside is one region, each output at an edge is its own."""
    size, window = spec.x.shape[axis + 2], spec.weight.shape[axis + 2]
    stride, padding, dilation = spec.stride[axis], spec.padding[axis], spec.dilation[axis]
    start, parts = 0, []
    for at in range(spec.output_shape[axis + 2]):
        first = at * stride - padding
        low = -(-max(-first, 0) // dilation)
        high = min(window, -(-max(size - first, 0) // dilation))
        parts.append(range(low, max(high, low)))
    for at in range(1, len(parts) + 1):
        if at == len(parts) or parts[at] != parts[start]:
            yield range(start, at), parts[start]
            start = at


def _places(
    spec: ConvSpec,
    image: int,
    y_range: range,
    x_range: range,
    y_window: range,
    x_window: range,
    sums: dict[Sum, int],
    shape: Shape,
) -> list[TablePlace]:
    channels, height, width = spec.x.shape[1:]
    rows, columns = spec.output_shape[2:]
    (down, across), (above, left) = spec.stride, spec.padding
    y_dilation, x_dilation = spec.dilation
    runs = tuple(
        WeightRun((y * y_dilation * width + x * x_dilation) * channels, y * spec.weight.shape[3] + x, 1)
        for y in y_window
        for x in x_window
    )

    def start(y: int, x: int) -> tuple[int, int]:
        """The offset of a pixel's window in x, possibly outside of it, and the offset of its result."""
        return (
            (((image * height + y * down - above) * width) + x * across - left) * channels,
            ((image * rows + y) * columns + x) * channels,
        )

    def number(x_step: int, out_step: int) -> int:
        return sums.setdefault(Sum(x_step, out_step, runs), len(sums))

    is_column = len(x_range) < len(y_range) and len(x_range) < shape.half
    if is_column:
        x_step, out_step = down * width * channels, columns * channels
        lines = [(start(y_range[0], x), len(y_range)) for x in x_range]
    else:
        x_step, out_step = across * channels, channels
        lines = [(start(y, x_range[0]), len(x_range)) for y in y_range]
    which = number(x_step, out_step)
    if lines[0][1] > shape.half:
        return [
            TablePlace(place.halves, place.x, place.out, which)
            for (x, out), count in lines
            for place in places_of_row(count, x, out, x_step, out_step, shape.half)
        ]
    made = []
    for n in range(0, len(lines), 2):
        # Two lines are the two groups of a tile.
        (first, count), second = lines[n], lines[min(n + 1, len(lines) - 1)][0]
        made.append(
            TablePlace((count,) * (2 if n + 1 < len(lines) else 1), (first[0], second[0]), (first[1], second[1]), which)
        )
    return made
