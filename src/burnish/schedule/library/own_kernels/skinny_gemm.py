"""Skinny GEMM: products of few rows by our own kernels, as a language model computes for its next tokens.

    y = x w.T        x: 1 to 8 rows, w: a linear layer's weight as it is, [outputs, depth]; or a transposed one

Such a product reads each number of the weight once and does little with it, so its time is that of the memory. The
kernel reads the weight where it is: nothing is packed, no memory is doubled, and the weight may change.
Each thread takes some of the outputs, computes their dot products with all rows of x in float32, and adds the bias
before it rounds once. f32, bf16 and f16.

The target of the CPU has the maker of native functions, as for `matmul_tiling_and_packing`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ....tensors.dtypes import SINGLES
from ....tensors.tensor_types import TensorType
from ..call_specs import LinearSpec
from ..candidate import Candidate, from_steps
from . import matmul_tiling_and_packing
from .matmul_tiling_and_packing import NativeCall

NAME = "own thin"

MOST_ROWS = 8
"""With more rows the weight is used often enough that arithmetic decides, and the libraries' tiles are better."""

FEWEST_COLUMNS = 32
"""One load of each dtype. The columns of a transposed weight have to fill one."""


@dataclass(frozen=True, slots=True)
class SkinnyGemm:
    """`out[m, n] = bias[n] + sum of x[m, k] * weight[n, k]`. Steps are in elements."""

    rows: int
    outputs: int
    depth: int
    dtype: torch.dtype
    x_step: int
    weight_step: int
    """From one row to the next, or from one column to the next where those are contiguous."""
    is_transposed: bool
    """Columns of the weight are contiguous, not rows."""
    has_bias: bool

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.outputs * self.depth

    @property
    def weight_bytes(self) -> int:
        return self.outputs * self.depth * self.dtype.itemsize


def own_skinny_gemm(spec: LinearSpec) -> Candidate | None:
    if why_not_skinny_gemm(spec) is not None:
        return None
    (rows, depth), outputs = spec.x.shape, spec.weight.shape[0]
    product = SkinnyGemm(
        rows,
        outputs,
        depth,
        spec.x.dtype,
        depth if rows == 1 else spec.x.stride[0],
        *weight_layout(spec.weight),
        spec.bias is not None,
    )
    output = TensorType.contiguous(spec.output_shape, spec.x.dtype, spec.x.device)

    def steps() -> list[NativeCall]:
        return [matmul_tiling_and_packing.maker().skinny_gemm(product)]

    operands = ("x", "weight", *(["bias"] if spec.bias is not None else []))
    return from_steps(NAME, spec, operands, output, steps)


def why_not_skinny_gemm(spec: LinearSpec) -> str | None:
    if matmul_tiling_and_packing.shape_here() is None:
        return "there are no kernels for this machine"
    if spec.x.shape[0] > MOST_ROWS:
        return "x has many rows"
    if spec.activation is not None or spec.residual is not None:
        return "the kernel takes no epilogue"
    for name, type in spec.inputs.items():
        if type.dtype not in SINGLES or type.dtype is not spec.x.dtype or not type.is_on_host:
            return f"{name} is {type}: the kernels compute in one dtype of {SINGLES} on the CPU"
        if type.numel == 0:
            return f"{name} is empty"
    if not has_contiguous_rows(spec.x):
        return "the rows of x have gaps between their numbers"
    if not has_contiguous_rows(spec.weight):
        if spec.weight.stride[0] != 1 and spec.weight.shape[0] != 1:
            return "the rows and the columns of the weight have gaps between their numbers"
        if spec.weight.shape[0] < FEWEST_COLUMNS:
            return "the weight is transposed, and there are few outputs"
    if spec.bias is not None and not spec.bias.is_contiguous:
        return "the bias has gaps"
    return None


def weight_layout(weight: TensorType) -> tuple[int, bool]:
    """The step between its contiguous rows or columns, and whether it is columns."""
    (outputs, depth), (down, across) = weight.shape, weight.stride
    if has_contiguous_rows(weight):
        return (depth if outputs == 1 else down), False
    return (outputs if depth == 1 else across), True


def has_contiguous_rows(type: TensorType) -> bool:
    return type.stride[1] == 1 or type.shape[1] == 1
