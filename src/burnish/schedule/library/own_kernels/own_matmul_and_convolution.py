"""Candidates that are our own kernels: linear layers and convolutions with frozen weights, in float32, and in bf16
where the processor multiplies pairs of it.

    own_linear(spec, epilogue)          None where the kernels do not fit; `why_not_linear` says why
    own_convolution(spec, epilogue)     of a channels-last x; windows that cross the edge read a padded copy

Bias and residual are added while the sums are in registers. `epilogue`, any expression of the sum, is computed there
too: NaN, infinities and rounding are those of a separate kernel of ours after the call.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

import torch

from ....ops.scalar_ir import Scalar
from ....tensors.dtypes import NAMES, PAIRED
from ....tensors.tensor_types import TensorType, has_stride
from ...layouts.channels_last_strides import channels_last_stride
from ..call_specs import ConvSpec, LinearSpec, MatmulSpec
from ..candidate import SCRATCH, Candidate, from_steps
from . import matmul_tiling_and_packing
from .depthwise_convolution import depthwise_product, why_not_depthwise
from .matmul_tiling_and_packing import NativeCall, Product, Sum, TablePlace, places_of_row, runs_of

NAME = "own packed"

MOST_PLACES = 4096
"""Most tiles in a table. Libraries compute larger images."""


def own_linear(spec: LinearSpec, epilogue: Scalar | None = None) -> Candidate | None:
    if why_not_linear(spec) is not None:
        return None
    output = TensorType.contiguous(spec.output_shape, spec.x.dtype, spec.x.device)
    products = linear_products(spec, epilogue)
    return _candidate(spec, products[0], output, None) if len(products) == 1 else _deep(spec, products, output)


def own_candidate(spec: LinearSpec | ConvSpec, epilogue: Scalar | None = None) -> Candidate | None:
    return own_linear(spec, epilogue) if isinstance(spec, LinearSpec) else own_convolution(spec, epilogue)


def tilings(spec: LinearSpec | ConvSpec) -> dict[str, Candidate]:
    """Our own kernel with each available tile shape, by name, the usual one first. Empty where there is no choice."""
    if isinstance(spec, ConvSpec) and spec.groups > 1:
        return {}
    made = {str(shape): own_candidate(replace(spec, tiles=shape)) for shape in matmul_tiling_and_packing.shapes_here()}
    return {name: replace(candidate, name=name) for name, candidate in made.items() if candidate is not None}


def why_not_linear(spec: LinearSpec) -> str | None:
    why = _why_not(spec)
    if why is not None:
        return why
    (rows, depth), (down, across) = spec.x.shape, spec.x.stride
    if spec.x.dtype in PAIRED and depth % 2:
        return f"an odd number of {NAMES[spec.x.dtype]} has no pairs"
    if across != 1 and depth != 1 or rows > 1 and down < depth:
        return "the rows of x have gaps between their numbers"
    if spec.residual is not None and not spec.residual.is_contiguous:
        return "the residual has another layout than the result"
    return None


def _why_not(spec: LinearSpec | ConvSpec) -> str | None:
    if matmul_tiling_and_packing.shape_here() is None:
        return "there are no kernels for this machine"
    if not spec.is_frozen:
        return "the weight may change"
    if spec.activation is not None:
        return "activations are given as expressions"
    if spec.bias is not None and not spec.bias.is_contiguous:
        return "the bias has gaps"
    return _why_not_inputs(spec, matmul_tiling_and_packing.dtypes_of_tiles())


def _why_not_inputs(
    spec: LinearSpec | ConvSpec | MatmulSpec, dtypes: Container[torch.dtype] = (torch.float32,)
) -> str | None:
    first = next(iter(spec.inputs.values())).dtype
    for name, type in spec.inputs.items():
        if type.dtype not in dtypes or type.dtype is not first or not type.is_on_host:
            return f"{name} is {type}: the kernels compute in another dtype on the CPU"
        if type.numel == 0:
            return f"{name} is empty"
    return None


DEEPEST, CACHED_BYTES = 1024, 512 << 10
"""A longer sum is computed in parts where x does not fit into a core's own cache beside the weights."""


def linear_products(spec: LinearSpec, epilogue: Scalar | None) -> list[Product]:
    """The parts of the product, in order; each but the first adds to the result of the one before it."""
    shape = spec.tiles or matmul_tiling_and_packing.shape_here()
    assert shape is not None
    (rows, depth), outputs, step = spec.x.shape, spec.weight.shape[0], spec.x.stride[0]
    step = step if rows > 1 else depth
    places = places_of_row(rows, 0, 0, step, outputs, shape.half)
    dtype = NAMES[spec.x.dtype]
    item = spec.x.dtype.itemsize
    # Between the parts of a sum of pairs, its result would be rounded.
    is_deep = dtype == "f32" and depth > DEEPEST and item * rows * depth > CACHED_BYTES
    parts = matmul_tiling_and_packing.split_evenly(depth, DEEPEST) if is_deep else [depth]
    made = []
    for number, part in enumerate(parts):
        is_first, is_last = number == 0, number == len(parts) - 1
        chunks = matmul_tiling_and_packing.in_chunks(places, part, outputs, part * outputs, shape.chunk, item)
        has_residual = not is_first or spec.residual is not None
        added = (is_first and spec.bias is not None, has_residual, epilogue if is_last else None)
        sums = (Sum(step, outputs, runs_of([0], part, dtype)),)
        made.append(Product(outputs, part, sums, chunks, shape, *added, dtype=dtype, result=dtype))
    return made


def _deep(spec: LinearSpec, products: list[Product], output: TensorType) -> Candidate:
    """A product whose sum is computed in parts."""
    pack = matmul_tiling_and_packing.panels(products, spec.bias is not None)
    columns = matmul_tiling_and_packing.packed_columns(products[0])

    def steps() -> list[NativeCall]:
        made = []
        for product, (start, _) in zip(products, pack.parts, strict=True):
            step = (
                matmul_tiling_and_packing.maker()
                .product(product)
                .moved(x=("x", 4 * start), packed=("packed", 4 * start * columns))
            )
            made.append(step.moved(residual=("out", 0)) if start else step)
        return made

    return from_steps(NAME, spec, _operands(spec), output, steps, prepare=pack, prepared=_prepared(spec))


# Batches of products --------------------------------------------------------------------------------------------------

STACK_BYTES = 256 << 10
"""The most that a packed matrix may take on a thread's stack."""


def own_batched(spec: MatmulSpec) -> Candidate | None:
    if why_not_batched(spec) is not None:
        return None
    shape = matmul_tiling_and_packing.shape_here()
    assert shape is not None
    count, rows, depth = spec.a.shape
    columns, step = spec.b.shape[2], spec.a.stride[1]
    places = tuple(places_of_row(rows, 0, 0, step, columns, shape.half))
    product = Product(columns, depth, (Sum(step, columns, runs_of([0], depth)),), (places,), shape)
    batched = matmul_tiling_and_packing.Batched(product, count, rows * columns, spec.a.stride[0], *spec.b.stride)
    output = TensorType.contiguous(spec.output_shape, spec.a.dtype, spec.a.device)
    return from_steps("own", spec, ("a", "b"), output, lambda: [matmul_tiling_and_packing.maker().batched(batched)])


def why_not_batched(spec: MatmulSpec) -> str | None:
    shape = matmul_tiling_and_packing.shape_here()
    if shape is None:
        return "there are no kernels for this machine"
    why = _why_not_inputs(spec)
    if why is not None:
        return why
    if spec.a.ndim != 3:
        return "it is not a batch"
    if spec.a.stride[2] != 1 and spec.a.shape[2] != 1:
        return "the rows of a have gaps between their numbers"
    panel = shape.lanes * shape.vectors
    if 4 * spec.b.shape[1] * -(-spec.b.shape[2] // panel) * panel > STACK_BYTES:
        return "the matrices of b are too large for a thread's stack"
    return None


# Convolutions ---------------------------------------------------------------------------------------------------------


def own_convolution(spec: ConvSpec, epilogue: Scalar | None = None) -> Candidate | None:
    if why_not_convolution(spec) is not None:
        return None
    output = TensorType(spec.output_shape, channels_last_stride(spec.output_shape), spec.x.dtype, spec.x.device)
    if spec.groups > 1:
        shape = matmul_tiling_and_packing.shape_here()
        assert shape is not None
        return _candidate(spec, depthwise_product(spec, epilogue, shape), output, None)
    return _candidate(spec, convolution_product(spec, epilogue), output, padded_shape(spec))


def why_not_convolution(spec: ConvSpec) -> str | None:
    why = why_not_images(spec)
    if why is not None:
        return why
    if spec.output_shape[0] * spec.output_shape[2] * spec.output_shape[3] // 14 > MOST_PLACES:
        return "the image has more pixels than the tables are meant for"
    return None


def why_not_images(spec: ConvSpec) -> str | None:
    """The same for images of any size."""
    why = _why_not(spec)
    if why is not None:
        return why
    if spec.dims != 2 or spec.transposed:
        return "it is not a plain convolution of images"
    if spec.groups > 1 and (why := why_not_depthwise(spec)) is not None:
        return why
    is_half = spec.x.dtype in PAIRED
    if (spec.groups > 1 or is_half) and not is_dense_channels_last(spec.x):
        return "x is not channels-last"
    if is_half and spec.groups == 1 and spec.x.shape[1] % 2:
        return f"an odd number of {NAMES[spec.x.dtype]} has no pairs"
    if spec.residual is not None and not has_stride(spec.residual, channels_last_stride(spec.output_shape)):
        return "the residual has another layout than the result"
    return None


def is_dense_channels_last(type: TensorType) -> bool:
    return has_stride(type, channels_last_stride(type.shape))


def padded_shape(spec: ConvSpec) -> tuple[int, int] | None:
    """Height and width of the padded channels-last copy of x that windows read; None where they read x itself."""
    if not any(spec.padding) and is_dense_channels_last(spec.x):
        return None
    sizes = []
    for axis in range(2):
        reach = spec.dilation[axis] * (spec.weight.shape[axis + 2] - 1) + 1
        sizes.append(
            max(
                (spec.output_shape[axis + 2] - 1) * spec.stride[axis] + reach,
                spec.x.shape[axis + 2] + spec.padding[axis],
            )
        )
    return sizes[0], sizes[1]


def convolution_product(spec: ConvSpec, epilogue: Scalar | None) -> Product:
    shape = spec.tiles or matmul_tiling_and_packing.shape_here()
    assert shape is not None
    images, channels = spec.x.shape[:2]
    height, width = padded_shape(spec) or spec.x.shape[2:]
    rows, columns = spec.output_shape[2:]
    outputs, (down, across) = spec.output_channels, spec.stride
    line = width * channels
    step = across * channels
    starts = [(image * height + row * down) * line for image in range(images) for row in range(rows)]
    if down == across == 1 and set(spec.weight.shape[2:]) == {1} and width == columns:
        # The pixels of all images are evenly spaced.
        places = places_of_row(images * rows * columns, 0, 0, step, outputs, shape.half)
    elif columns <= shape.half:
        # Two rows of the image are the two groups of a tile.
        places = [
            TablePlace(
                (columns,) * (2 if n + 1 < len(starts) else 1),
                (starts[n], starts[min(n + 1, len(starts) - 1)]),
                (n * columns * outputs, (n + 1) * columns * outputs),
            )
            for n in range(0, len(starts), 2)
        ]
    else:
        row = places_of_row(columns, 0, 0, step, outputs, shape.half)
        places = [
            TablePlace(
                place.halves,
                (place.x[0] + start, place.x[1] + start),
                (place.out[0] + n * columns * outputs, place.out[1] + n * columns * outputs),
            )
            for n, start in enumerate(starts)
            for place in row
        ]
    dtype = NAMES[spec.x.dtype]
    runs = runs_of(*_runs(spec, line, channels), dtype)
    depth = sum(run.length for run in runs)
    # Neighbouring windows share most of what they read.
    reads = max(depth * across * down // max(spec.weight.shape[2] * spec.weight.shape[3], 1), channels)
    chunks = matmul_tiling_and_packing.in_chunks(
        places, reads, outputs, depth * outputs, shape.chunk, spec.x.dtype.itemsize
    )
    added = (spec.bias is not None, spec.residual is not None, epilogue)
    return Product(outputs, depth, (Sum(step, outputs, runs),), chunks, shape, *added, dtype=dtype, result=dtype)


def _runs(spec: ConvSpec, line: int, channels: int) -> tuple[list[int], int]:
    """The start of each contiguous stretch that a window reads, and their length."""
    high, wide = spec.weight.shape[2:]
    down, across = spec.dilation
    if across == 1:
        return [row * down * line for row in range(high)], wide * channels
    return [row * down * line + column * across * channels for row in range(high) for column in range(wide)], channels


# Shared ---------------------------------------------------------------------------------------------------------------


def _candidate(
    spec: LinearSpec | ConvSpec, product: Product, output: TensorType, padded: tuple[int, int] | None
) -> Candidate:
    if padded is None:
        scratch = 0
    else:
        images, channels = spec.x.shape[:2]
        scratch = spec.x.dtype.itemsize * images * channels * padded[0] * padded[1]

    def steps() -> list[NativeCall]:
        made = matmul_tiling_and_packing.maker().product(product)
        if padded is None:
            return [made]
        assert isinstance(spec, ConvSpec)
        copy = matmul_tiling_and_packing.maker().padding(spec.x, padded, spec.padding)
        return [copy.moved(out=(SCRATCH, 0)), made.moved(x=(SCRATCH, 0))]

    return from_steps(
        NAME,
        spec,
        _operands(spec),
        output,
        steps,
        scratch=scratch,
        prepared=_prepared(spec),
        copies=() if padded is None else ("x",),
        prepare=matmul_tiling_and_packing.panels([product], spec.bias is not None, is_finite_only=padded is not None),
    )


def _operands(spec: LinearSpec | ConvSpec) -> tuple[str, ...]:
    return ("x", *_prepared(spec), *(["residual"] if spec.residual is not None else []))


def _prepared(spec: LinearSpec | ConvSpec) -> tuple[str, ...]:
    return ("packed", "bias") if spec.bias is not None else ("packed",)
