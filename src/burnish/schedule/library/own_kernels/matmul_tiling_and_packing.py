"""Tiling of our own matmul kernels, and weight packing for them.

    product = linear_product(spec, shape)        None where tiles do not fit
    product.steps   the work of a native function; see `codegen.llvm.functions.matmul`

A product of pixels (the rows of a linear layer, the pixels of a channels-last image) and weights is split into *panels*
of a few vectors of outputs and *tiles* of a few pixels. A tile of 14 pixels by 2 vectors keeps 28 sums in registers.
The loads of one step, 2 vectors of weights and 14 numbers of x, serve 28 fused multiply-adds. A window is a sum of
*runs*: in each of its rows, its numbers are contiguous in memory.

The target of the CPU has the `NativeKernelMaker`, which compiles the machine code. Without one there are no such
candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ....ops.scalar_ir import Scalar
from ....ops.target_record import target_of
from ....tensors.device_facts import CPU
from ....tensors.dtypes import DTYPES, PAIRED
from ....tensors.tensor_types import TensorType
from ....tensors.weight_packing import Panels

LONGEST_RUN = 128
"""Most numbers that are summed in a register before the sum goes to memory. A longer chain of additions would round
more than the libraries' blocks do."""

LONGEST_RUN_OF_PAIRS = 1024
"""The same for bf16. Rounding the result hides the rounding of the sum."""

SMALL_WEIGHT, CHUNK_BYTES, LARGE_CHUNK_BYTES = 512 << 10, 256 << 10, 1 << 20
"""All panels are computed for a chunk of pixels before the next one, so that its data stays in a core's own cache. A
weight that does not fit there is read once for each chunk: then chunks are larger."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Tile shape on a machine: what its registers hold."""

    lanes: int
    half: int
    """A tile is two groups of at most this many pixels, each with a constant step between pixels."""
    vectors: int
    chunk: float = 1.0
    """A factor of the usual number of pixels in a chunk. Larger chunks give fewer tasks for the threads."""

    def __repr__(self) -> str:
        return f"{2 * self.half}x{self.vectors}" + (f" chunk {self.chunk:g}" if self.chunk != 1.0 else "")


@dataclass(frozen=True, slots=True)
class MatmulTile:
    """One native function: the pixels of the two groups, vectors of outputs, and the work at the end."""

    halves: tuple[int, ...]
    vectors: int
    is_masked: bool = False
    """The last vector has fewer outputs than lanes."""
    is_depthwise: bool = False
    """Each output is a sum over its own channel of x."""
    is_blocked: bool = False
    """Sums go to memory after `LONGEST_RUN` numbers."""
    has_residual: bool = False
    epilogue: Scalar | None = None
    """An expression of the sum, which it reads as a load of buffer 0."""
    dtype: str = "f32"
    """Of x and of the weights. bf16 is multiplied in pairs, which are neighbours in memory: a pair takes the place of a
    float32. The sums are float32."""
    result: str = "f32"
    """The dtype of the result, of the bias and of the residual."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The offsets of a tile's two groups, in elements: in x, and in the result."""

    halves: tuple[int, ...]
    x: tuple[int, int]
    out: tuple[int, int]
    sum: int = 0
    """The index of the sum, among those of the product."""


@dataclass(frozen=True, slots=True)
class WeightRun:
    x: int
    """Its offset from a pixel, in elements."""
    weight: int
    """Its first row in a panel of weights."""
    length: int


@dataclass(frozen=True, slots=True)
class Sum:
    """The runs that a tile adds up. At an image's edge there are fewer."""

    x_step: int
    """From one pixel of a group to the next, in elements."""
    out_step: int
    runs: tuple[WeightRun, ...]


@dataclass(frozen=True, slots=True)
class Product:
    outputs: int
    depth: int
    """Rows of a panel of weights."""
    sums: tuple[Sum, ...]
    chunks: tuple[tuple[TablePlace, ...], ...]
    shape: Shape
    has_bias: bool = False
    has_residual: bool = False
    epilogue: Scalar | None = None
    is_depthwise: bool = False
    dtype: str = "f32"
    """Of x and of the weights, see `MatmulTile`. Offsets count its numbers, also where they are multiplied in pairs."""
    result: str = "f32"
    batches: int = 1
    """Products of this tiling, each with its own weights, which follow each other. They have no bias or residual."""
    x_batch: int = 0
    """From the x of one of them to the next, in elements, and the same of the result."""
    out_batch: int = 0
    shorter_run: int | None = None
    """The longest run, where sums have to be more accurate than usual."""

    @property
    def item(self) -> int:
        """The bytes of a number of x."""
        return DTYPES[self.dtype].itemsize

    @property
    def longest_run(self) -> int:
        return self.shorter_run or longest_run(self.dtype)

    @property
    def flops(self) -> int:
        pixels = sum(sum(place.halves) for chunk in self.chunks for place in chunk)
        return 2 * self.batches * pixels * self.depth * self.outputs

    @property
    def panel(self) -> int:
        return self.shape.lanes * self.shape.vectors

    @property
    def panels(self) -> int:
        return -(-self.outputs // self.panel)

    @property
    def last_vectors(self) -> int:
        """Of the last panel."""
        return -(-(self.outputs - (self.panels - 1) * self.panel) // self.shape.lanes)

    def tile(self, halves: tuple[int, ...], *, is_last: bool) -> MatmulTile:
        vectors = self.last_vectors if is_last else self.shape.vectors
        is_masked = is_last and self.outputs % self.shape.lanes != 0
        is_blocked = self.depth > self.longest_run and not self.is_depthwise
        work = (self.has_residual, self.epilogue, self.dtype, self.result)
        return MatmulTile(halves, vectors, is_masked, self.is_depthwise, is_blocked, *work)


@dataclass(frozen=True, slots=True)
class Batched:
    """Products of pairs of matrices. Steps are in elements."""

    product: Product
    """Of one pair."""
    count: int
    out_batch: int
    a_batch: int
    b_batch: int
    b_row: int
    b_column: int


Spot = tuple[str, int]
"""The name of a tensor, and a byte offset in it."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A table entry of a step on a GPU: the stream that is current there when the step runs."""

    device: int
    current: Callable[[], int]
    check: Callable[[], None]
    """Raises the error of a failed launch."""


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A native function and its argument table: spots in tensors, and constants."""

    kernel: Any
    """A `runtime.program.native_kernels.NativeKernel`."""
    table: tuple[Any, ...]
    """Spots, plain numbers, `runtime.program.native_kernels.Words`, and a Stream where it is launched on a GPU."""

    def moved(self, **spots: Spot) -> NativeCall:
        """The same step on other tensors: replaces the spots of the named ones."""
        return replace(
            self, table=tuple(spots.get(entry[0], entry) if isinstance(entry, tuple) else entry for entry in self.table)
        )


@dataclass(frozen=True, slots=True)
class NativeKernelMaker:
    """The code generator's compilers of native functions."""

    product: Callable[[Product], NativeCall]
    """Of "out", "x", "packed" and, where the product has them, "bias" and "residual"."""
    batched: Callable[[Batched], NativeCall]
    """Of "out", "a" and "b"."""
    padding: Callable[[TensorType, tuple[int, int], tuple[int, ...]], NativeCall]
    """From "x" to "out". Given x, height and width of the copy, and the border above and to the left."""
    attention: Callable[[Any], NativeCall]
    """Of "out", "q", "k", "v", "mask" where there is one, and "scratch". Given an `query_block_attention.Attention`."""
    winograd: Callable[[Any], tuple[NativeCall, NativeCall]]
    """Before and after the product: from "x" to "out", and from "x" to "out" with "image", "weight" and, where the
    convolution has them, "bias" and "residual". Given a `winograd_convolution.Winograd`."""
    token_attention: Callable[[Any], NativeCall]
    """Of "out", "q", "k", "v" and "mask" where there is one. Given a `token_attention.TokenAttention`."""
    recurrence: Callable[[Any], NativeCall]
    """Of "out", "hidden", "cell", "scratch", "hidden_packed" and the first states. Given a `recurrent.Recurrence`."""
    skinny_gemm: Callable[[Any], NativeCall]
    """Of "out", "x", "weight" and, where the product has one, "bias". Given a `skinny_gemm.SkinnyGemm`."""
    quantized: Callable[[Any], NativeCall]
    """The same with "scales" and "shifts". Given a `quantized_product.QuantizedProduct`."""
    dequantized: Callable[[Any], NativeCall]
    """From "weight", "scales" and "shifts" to "out", the weight in floats. Given a `QuantizedProduct`."""
    integers: Callable[[Any], NativeCall]
    """Of "out", "x" and "weight", all of integers. Given a `QuantizedProduct`."""
    gemm: Callable[[Any], NativeCall]
    """Of "out", "a", "b" and, where something is added, "added". Given a `mkl.Gemm`."""
    dtypes_of_gemm: Callable[[], Container[torch.dtype]]
    """The dtypes that `gemm` supports."""
    dtypes_of_tiles: Callable[[], Container[torch.dtype]]
    """The dtypes of x and of the weights that the tiles multiply on this machine."""
    dtypes_of_matrix_units: Callable[[], Container[torch.dtype]]
    """The dtypes that libraries multiply with faster instructions than those of the tiles."""
    shape: Callable[[], Shape | None]
    """The tile shape on this machine; None where it has too few registers."""


def maker_here() -> NativeKernelMaker | None:
    """None where no code generator is available."""
    target = target_of(CPU)
    return None if target is None else target.native_kernels


def maker() -> NativeKernelMaker:
    found = maker_here()
    assert found is not None, "there are no such candidates without a code generator"
    return found


def dtypes_of_gemm() -> Container[torch.dtype]:
    found = maker_here()
    return () if found is None else found.dtypes_of_gemm()


def dtypes_of_tiles() -> Container[torch.dtype]:
    found = maker_here()
    return () if found is None else found.dtypes_of_tiles()


def dtypes_of_matrix_units() -> Container[torch.dtype]:
    found = maker_here()
    return () if found is None else found.dtypes_of_matrix_units()


def shape_here() -> Shape | None:
    """None where no code generator is available."""
    found = maker_here()
    return None if found is None else found.shape()


MOST_VECTORS = 4
CHUNKS = (0.25, 4.0)


def shapes_here() -> list[Shape]:
    """Shapes worth measuring, the usual one first: other tiles with as many sums in registers, other chunk sizes."""
    usual = shape_here()
    if usual is None:
        return []
    tiles = [
        Shape(usual.lanes, usual.half * usual.vectors // vectors, vectors)
        for vectors in range(1, MOST_VECTORS + 1)
        if usual.half * usual.vectors // vectors > 1
    ]
    return list(dict.fromkeys([usual, *tiles, *(replace(usual, chunk=chunk) for chunk in CHUNKS)]))


def split_evenly(count: int, most: int) -> list[int]:
    """As few parts as possible, none larger than `most`, of nearly equal size: at most two sizes of tile."""
    parts = -(-count // most)
    small, larger = divmod(count, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def halved(count: int, most: int) -> tuple[int, ...]:
    return (count,) if count <= most else (count - count // 2, count // 2)


def places_of_row(count: int, x: int, out: int, x_step: int, out_step: int, half: int) -> list[TablePlace]:
    """Tiles for pixels at even steps."""
    made = []
    for size in split_evenly(count, 2 * half):
        halves = halved(size, half)
        second = halves[0]
        made.append(TablePlace(halves, (x, x + second * x_step), (out, out + second * out_step)))
        x, out = x + size * x_step, out + size * out_step
    return made


def longest_run(dtype: str) -> int:
    return LONGEST_RUN_OF_PAIRS if DTYPES[dtype] in PAIRED else LONGEST_RUN


def runs_of(
    starts: Sequence[int], length: int, dtype: str = "f32", shorter: int | None = None
) -> tuple[WeightRun, ...]:
    """Stretches of one length, split at the longest run that a sum may have."""
    longest = shorter or longest_run(dtype)
    return tuple(
        WeightRun(start + at, number * length + at, min(longest, length - at))
        for number, start in enumerate(starts)
        for at in range(0, length, longest)
    )


def in_chunks(
    places: list[TablePlace], read: int, written: int, weight: int, scale: float = 1.0, item: int = 4
) -> tuple[tuple[TablePlace, ...], ...]:
    """Groups neighbouring tiles into chunks of `scale` times the usual size. `read` and `written` are numbers for each
    pixel, of `item` bytes; `weight` is the size of the whole weight."""
    pixels = sum(sum(place.halves) for place in places) / max(len(places), 1)
    if item * weight <= SMALL_WEIGHT:
        count = max(int(scale * CHUNK_BYTES / (item * (read + written) * pixels)), 1)
    else:
        count = max(int(scale * LARGE_CHUNK_BYTES / (item * read * pixels)), 1)
    parts = split_evenly(len(places), count)
    chunks, at = [], 0
    for size in parts:
        chunks.append(tuple(places[at : at + size]))
        at += size
    return tuple(chunks)


def packed_columns(product: Product) -> int:
    """The width of a packed weight: its numbers for each step of the sum."""
    return (product.panels - 1) * product.panel + product.last_vectors * product.shape.lanes


def panels(products: Sequence[Product], has_bias: bool, is_finite_only: bool = False) -> Panels:
    """The packing of a weight for products that are the parts of one sum."""
    product, at = products[0], 0
    parts, pair = [], 1 if product.is_depthwise else 4 // product.item
    for each in products:
        parts.append((at, each.depth // pair))
        at += each.depth // pair
    return Panels(
        tuple(parts),
        product.panel,
        product.panels - 1,
        product.last_vectors * product.shape.lanes,
        has_bias,
        is_finite_only,
        pair == 2,
    )
