"""Products of few rows and a weight of integers by our own kernel: see `skinny_gemm`, which is the same for floats.

    y = x @ ((q - offset) * scales + shifts).T + bias      q: int8 or uint8 [N, K], or two in each byte [N, K / 2]

The integers are converted in registers, between memory and the multiplication, so the product takes the time of reading
them: an eighth of that of float32 with 4 bits. Scales are one for each row, or for each group of a row; they are
multiplied with the sums of a group. x is converted once, into the order in which the integers come.

Up to 8 rows are multiplied with each number that is converted. More rows read the weight again: once for every
8 of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ....concurrency.first_value_cache import once
from ....tensors.dtypes import SINGLES
from ....tensors.tensor_types import TensorType
from ..call_specs import IntegerSpec, QuantizedSpec
from ..candidate import Candidate, from_steps
from . import matmul_tiling_and_packing
from .matmul_tiling_and_packing import NativeCall, split_evenly
from .skinny_gemm import MOST_ROWS, has_contiguous_rows

NAME, DEQUANTIZED, INTEGERS = "own quantized", "own dequantized", "own integers"

MOST_BLOCKS = 8
"""Times that a weight is read. With more rows, arithmetic decides, and the libraries' tiles are better."""

STACK_BYTES = 320 << 10
"""The most that the converted rows of x may take on the stack of the calling thread."""


@dataclass(frozen=True, slots=True)
class QuantizedProduct:
    """Steps are in elements; of the weight, in bytes."""

    rows: int
    outputs: int
    depth: int
    dtype: torch.dtype
    bits: int
    is_signed: bool
    offset: int
    group: int
    scales: torch.dtype | None
    shifts: torch.dtype | None
    has_bias: bool
    x_step: int
    weight_step: int
    scales_step: int
    shifts_step: int

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.outputs * self.depth

    @property
    def groups(self) -> int:
        return self.depth // self.group

    @property
    def weight_bytes(self) -> int:
        return self.outputs * self.depth * self.bits // 8


def own_quantized(spec: QuantizedSpec) -> Candidate | None:
    if why_not_quantized(spec) is not None:
        return None
    rows, outputs = spec.output_shape
    parts = split_evenly(rows, most_rows(spec.x.shape[1]))
    item = spec.x.dtype.itemsize

    def steps() -> list[NativeCall]:
        made, first = [], 0
        for part in parts:
            step = matmul_tiling_and_packing.maker().quantized(product_of(spec, part))
            made.append(step.moved(x=("x", item * first * spec.x.stride[0]), out=("out", item * first * outputs)))
            first += part
        return made

    output = TensorType.contiguous(spec.output_shape, spec.x.dtype, spec.x.device)
    return from_steps(NAME, spec, tuple(spec.inputs), output, steps)


@once
def own_dequantized(spec: QuantizedSpec) -> Candidate | None:
    """The weight in x's dtype, for a spec of one row: products with any number of rows share it."""
    if why_not_converted(spec) is not None:
        return None
    operands = tuple(name for name in spec.inputs if name not in ("x", "bias"))
    output = TensorType.contiguous((spec.weight.shape[0], spec.x.shape[1]), spec.x.dtype, spec.x.device)
    product = product_of(spec, 1)
    return from_steps(
        DEQUANTIZED, spec, operands, output, lambda: [matmul_tiling_and_packing.maker().dequantized(product)]
    )


def own_integers(spec: IntegerSpec) -> Candidate | None:
    if why_not_integers(spec) is not None:
        return None
    (rows, depth), outputs = spec.x.shape, spec.weight.shape[0]
    x_step = depth if rows == 1 else spec.x.stride[0]
    weight_step = depth if outputs == 1 else spec.weight.stride[0]
    product = QuantizedProduct(
        *(rows, outputs, depth, torch.int8, 8, True, 0, depth, None, None, False, x_step, weight_step, 0, 0)
    )
    output = TensorType.contiguous(spec.output_shape, torch.int32, spec.x.device)
    return from_steps(
        INTEGERS, spec, ("x", "weight"), output, lambda: [matmul_tiling_and_packing.maker().integers(product)]
    )


def why_not_integers(spec: IntegerSpec) -> str | None:
    if matmul_tiling_and_packing.shape_here() is None:
        return "there are no kernels for this machine"
    rows, depth = spec.x.shape
    if rows > MOST_ROWS or rows * depth > STACK_BYTES:
        return "x has many rows, or long ones"
    for name, type in spec.inputs.items():
        if type.dtype is not torch.int8 or not type.is_on_host or type.numel == 0:
            return f"{name} is {type}"
        if not has_contiguous_rows(type):
            return f"{name} has gaps between its numbers"
    return None


def of_one_row(spec: QuantizedSpec) -> QuantizedSpec:
    x = TensorType.contiguous((1, spec.x.shape[1]), spec.x.dtype, spec.x.device)
    return replace(spec, x=x, bias=None)


def most_rows(depth: int) -> int:
    return max(min(MOST_ROWS, STACK_BYTES // (4 * depth)), 1)


def product_of(spec: QuantizedSpec, rows: int) -> QuantizedProduct:
    depth = spec.x.shape[1]

    def step(type: TensorType | None) -> int:
        return 0 if type is None else type.shape[1] if type.shape[0] == 1 else type.stride[0]

    return QuantizedProduct(
        rows,
        spec.weight.shape[0],
        depth,
        spec.x.dtype,
        spec.bits,
        spec.weight.dtype is torch.int8,
        spec.offset,
        spec.group,
        spec.scales and spec.scales.dtype,
        spec.shifts and spec.shifts.dtype,
        spec.bias is not None,
        depth if spec.x.shape[0] == 1 else spec.x.stride[0],
        step(spec.weight),
        step(spec.scales),
        step(spec.shifts),
    )


def why_not_quantized(spec: QuantizedSpec) -> str | None:
    rows, depth = spec.x.shape
    if rows > MOST_BLOCKS * most_rows(depth):
        return "x has many rows"
    if 4 * depth > STACK_BYTES:
        return "the rows of x are long"
    return why_not_converted(spec)


def why_not_converted(spec: QuantizedSpec) -> str | None:
    """Why the kernels cannot convert such integers, or None."""
    shape, depth = matmul_tiling_and_packing.shape_here(), spec.x.shape[1]
    if shape is None:
        return "there are no kernels for this machine"
    if spec.x.dtype not in SINGLES or spec.bias is not None and spec.bias.dtype is not spec.x.dtype:
        return f"the kernels compute in one dtype of {SINGLES}"
    if spec.weight.dtype not in (torch.int8, torch.uint8) or spec.bits == 4 and spec.weight.dtype is torch.int8:
        return f"the weight is {spec.weight}"
    if spec.group != depth and spec.group % (2 * shape.lanes):
        return f"a group of {spec.group} is not a whole number of vectors"
    for name, type in spec.inputs.items():
        if type.numel == 0 or not type.is_on_host:
            return f"{name} is empty, or not on the CPU"
        if name == "bias" and not type.is_contiguous or name != "bias" and not has_contiguous_rows(type):
            return f"{name} has gaps between its numbers"
        if name in ("scales", "shifts") and type.dtype not in SINGLES:
            return f"{name} is {type}"
    return None
