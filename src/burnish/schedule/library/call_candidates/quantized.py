"""The candidates of a product with a quantized weight.

dequantized     the weight in x's dtype, by our own kernel or in eager, and the library's product
_int_mm         torch's product of int8
own integers    ours, for a few rows
own quantized   our own kernel, which converts in registers: see `own_kernels.quantized_product`
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ....tensors.quantized_linear_reference import quantized_linear
from ....tensors.tensor_types import TensorType
from ..call_specs import IntegerSpec, QuantizedSpec
from ..candidate import Candidate, Operand, OperatorCall, from_call
from ..own_kernels.quantized_product import of_one_row, own_dequantized, own_integers, own_quantized


def quantized_candidates(spec: QuantizedSpec) -> Iterator[Candidate]:
    yield dequantized(spec)
    own = own_quantized(spec)
    if own is not None:
        yield own


def integer_candidates(spec: IntegerSpec) -> Iterator[Candidate]:
    output = TensorType.contiguous(spec.output_shape, torch.int32, spec.x.device)
    weight = Operand("weight", spec.weight.shape[::-1], spec.weight.stride[::-1])
    yield from_call("_int_mm", spec, OperatorCall(torch.ops.aten._int_mm.default, (Operand("x"), weight)), output)
    own = own_integers(spec)
    if own is not None:
        yield own


def dequantized(spec: QuantizedSpec) -> Candidate:
    names = tuple(spec.inputs)

    ours = own_dequantized(of_one_row(spec))

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, tensors, strict=True))
        if ours is not None:
            return product(given["x"], ours.run(*map(given.__getitem__, ours.operands)), given.get("bias"))
        operands = (given.get(name) for name in ("x", "weight", "scales", "shifts", "bias"))
        return quantized_linear(*operands, spec.bits, spec.group, spec.offset)  # type: ignore[misc]

    output = TensorType.contiguous(spec.output_shape, spec.x.dtype, spec.x.device)
    return Candidate("dequantized", spec, names, run, output)


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x @ weight.t() if bias is None else torch.addmm(bias, x, weight.t())
