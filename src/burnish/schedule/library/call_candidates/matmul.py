"""The candidates of a product of two values.

mm, bmm           eager
onednn            b as the weight of a linear layer (two dimensions)
bmm of copies     a batch of transposed or strided matrices, copied to contiguous first: MKL's batched product
                  is slow on such
mm                also for a batch of one
own               our own kernels, for batches of small matrices

>>> [c.name for c in matmul_candidates(MatmulSpec(f32[64, 768], f32[768, 64]))]
['mm', 'onednn']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from ....ops.layouts_eager_accepts import reads_gaps
from ....tensors.tensor_types import TensorType
from ..call_specs import LinearSpec, MatmulSpec
from ..candidate import Candidate, Operand, OperatorCall, from_call
from ..own_kernels.matmul_tiling_and_packing import NativeCall
from ..own_kernels.own_matmul_and_convolution import own_batched
from . import mkl, onednn_limits
from .linear import native_product, rows_of, why_not_plain

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn

A, B = Operand("a"), Operand("b")


def matmul_candidates(spec: MatmulSpec) -> Iterator[Candidate]:
    output = TensorType.contiguous(spec.output_shape, spec.a.dtype, spec.a.device)
    if spec.a.ndim == 2:
        yield from _plain(spec, output)
    else:
        yield from _batched(spec, output)


def _plain(spec: MatmulSpec, output: TensorType) -> Iterator[Candidate]:
    call = OperatorCall(aten.mm.default, (A, B), out=aten.mm.out)
    yield from_call("mm", spec, call, output, steps=_natively(spec.a, spec.b), rows=rows_of(spec.a, "a"))
    linear = as_linear(spec)
    if onednn_limits.why_not(linear) is None and why_not_plain(linear.weight) is None:
        weight = Operand("b", linear.weight.shape, linear.weight.stride)
        call = OperatorCall(mkldnn._linear_pointwise.default, (A, weight, None, *onednn_limits.attribute(None)))
        yield from_call("onednn", spec, call, output)


def _natively(a: TensorType, b: TensorType) -> Callable[[], Sequence[NativeCall]] | None:
    gemm = mkl.plain_product(a, b) if mkl.why_not_plain(a, b) is None else None
    return gemm and native_product(gemm)


def as_linear(spec: MatmulSpec) -> LinearSpec:
    b = spec.b
    return LinearSpec(spec.a, TensorType(b.shape[::-1], b.stride[::-1], b.dtype, b.device))


def matrix_of(batch: TensorType) -> TensorType:
    """The first matrix of a batch."""
    return TensorType(batch.shape[1:], batch.stride[1:], batch.dtype, batch.device)


def _batched(spec: MatmulSpec, output: TensorType) -> Iterator[Candidate]:
    yield from_call("bmm", spec, OperatorCall(aten.bmm.default, (A, B), out=aten.bmm.out), output)
    if spec.a.shape[0] == 1 and not reads_gaps(spec.a):
        a, b = (Operand(name, type.shape[1:], type.stride[1:]) for name, type in spec.inputs.items())
        matrix = TensorType.contiguous(output.shape[1:], output.dtype, output.device)
        call = OperatorCall(aten.mm.default, (a, b), out=aten.mm.out, result=matrix)
        yield from_call("mm", spec, call, output, steps=_natively(*map(matrix_of, (spec.a, spec.b))))
    elif not (spec.a.is_contiguous and spec.b.is_contiguous):

        def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.bmm(a.contiguous(), b.contiguous())

        def run_into(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.bmm(a.contiguous(), b.contiguous(), out=out)

        yield Candidate("bmm of copies", spec, ("a", "b"), run, output, run_into=run_into)
    own = own_batched(spec)
    if own is not None:
        yield own
