"""The candidates of a product with a quantized weight.

dequantized     part by part of the weight: its numbers in x's dtype, and the library's product
own quantized   our own kernel, which converts in registers: see `own_kernels.quantized_product`
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ....tensors.quantized_weights import quantized_linear
from ....tensors.tensor_types import TensorType
from ..call_specs import QuantizedSpec
from ..candidate import Candidate
from ..own_kernels.quantized_product import own_quantized


def quantized_candidates(spec: QuantizedSpec) -> Iterator[Candidate]:
    yield dequantized(spec)
    own = own_quantized(spec)
    if own is not None:
        yield own


def dequantized(spec: QuantizedSpec) -> Candidate:
    names = tuple(spec.inputs)

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, tensors, strict=True))
        operands = (given.get(name) for name in ("x", "weight", "scales", "shifts", "bias"))
        return quantized_linear(*operands, spec.bits, spec.group, spec.offset)  # type: ignore[misc]

    output = TensorType.contiguous(spec.output_shape, spec.x.dtype, spec.x.device)
    return Candidate("dequantized", spec, names, run, output)
