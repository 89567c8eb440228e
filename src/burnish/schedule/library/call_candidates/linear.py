"""The candidates of a linear layer.

addmm                 eager: addmm or mm, residual and activation after it in torch's operators
addmm onto residual   the residual in place of the bias
onednn                oneDNN's fused call on the weight as it is
onednn packed         the same on a weight in oneDNN's own layout
mkl packed            MKL on a weight in MKL's layout
addmv                 one row: a matrix times a vector
own thin              our own kernel for a few rows and the weight as it is, see `own_kernels.skinny_gemm`
own packed            our own kernels, see `own_kernels.own_matmul_and_convolution`

>>> [c.name for c in linear_candidates(LinearSpec(x, weight, bias, is_frozen=True))]
['addmm', 'onednn', 'onednn packed', 'mkl packed', 'own packed']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from ....concurrency.first_value_cache import once
from ....ops.layouts_eager_accepts import reads_gaps
from ....tensors.tensor_types import TensorType
from ..call_specs import ConvSpec, LinearSpec
from ..candidate import Candidate, Operand, OperatorCall, Tensors, from_call, from_steps
from ..own_kernels import matmul_tiling_and_packing
from ..own_kernels.matmul_tiling_and_packing import NativeCall
from ..own_kernels.own_matmul_and_convolution import own_linear
from ..own_kernels.skinny_gemm import own_skinny_gemm
from . import mkl, onednn_limits

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn

X, WEIGHT, BIAS, RESIDUAL, PACKED = (Operand(name) for name in ("x", "weight", "bias", "residual", "packed"))


def linear_candidates(spec: LinearSpec) -> Iterator[Candidate]:
    """All ways to compute the spec, eager's first."""
    output = TensorType.contiguous(spec.output_shape, spec.x.dtype, spec.x.device)
    yield eager(spec, output)
    if why_not_onto_residual(spec) is None:
        yield _onto_residual(spec, output)
    if onednn_limits.why_not_fused(spec) is None:
        rows = () if spec.x.is_contiguous else ("x",)
        if why_not_plain(spec.weight) is None:
            yield from_call("onednn", spec, _onednn_call(spec, WEIGHT), output, rows=rows)
        if spec.is_frozen:
            yield from_call(
                "onednn packed",
                spec,
                _onednn_call(spec, PACKED),
                output,
                rows=rows,
                prepare=_onednn_packing(spec),
                prepared=packed_names(spec),
            )
    if why_not_mkl_packed(spec) is None:
        yield _mkl_packed(spec, output)
    if why_not_vector(spec) is None:
        yield _vector(spec, output)
    for own in (own_skinny_gemm(spec), own_linear(spec)):
        if own is not None:
            yield own


def eager(spec: LinearSpec, output: TensorType) -> Candidate:
    if spec.bias is None:
        call = OperatorCall(aten.mm.default, (X, transposed(spec)), out=aten.mm.out)
    else:
        call = OperatorCall(aten.addmm.default, (BIAS, X, transposed(spec)), out=aten.addmm.out)
    plain = from_call(
        "mm" if spec.bias is None else "addmm", spec, call, output, steps=_natively(spec), rows=rows_of(spec.x, "x")
    )
    return with_epilogue(spec, plain)


def rows_of(left: TensorType, name: str) -> tuple[str, ...]:
    """The left operand of a product, where its rows must be copied first: see `Candidate.rows`."""
    return (name,) if reads_gaps(left) else ()


def _natively(spec: LinearSpec) -> Callable[[], Sequence[NativeCall]] | None:
    """The native function that eager calls in the end. None where that is unknown."""
    if mkl.why_not_plain(*spec.inputs.values()) is not None or not (spec.bias is None or spec.bias.is_contiguous):
        return None
    (n, k), (step_n, step_k) = spec.weight.shape, spec.weight.stride
    weight = TensorType((k, n), (step_k, step_n), spec.weight.dtype, spec.weight.device)
    gemm = mkl.plain_product(spec.x, weight, None if spec.bias is None else 0)
    return gemm and native_product(gemm, a="x", b="weight", added="bias")


def native_product(gemm: mkl.Gemm, **names: str) -> Callable[[], Sequence[NativeCall]]:
    """The steps of a product, with the candidate's names for its operands."""
    spots = {name: (operand, 0) for name, operand in names.items()}
    return once(lambda: [matmul_tiling_and_packing.maker().gemm(gemm).moved(**spots)])


def transposed(spec: LinearSpec) -> Operand:
    """The weight as the right side of a product, [K, N]."""
    return Operand("weight", spec.weight.shape[::-1], spec.weight.stride[::-1])


def with_epilogue(spec: LinearSpec | ConvSpec, plain: Candidate) -> Candidate:
    """The candidate followed by residual and activation in torch's own operators."""
    product, has_residual, activation = plain.run, spec.residual is not None, spec.activation
    if not has_residual and activation is None:
        return plain

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        if has_residual:
            *tensors, residual = tensors
            y = product(*tensors).add_(residual)
        else:
            y = product(*tensors)
        return y if activation is None else activation(y)

    operands = (*plain.operands, "residual") if has_residual else plain.operands
    return replace(plain, operands=operands, run=run, run_into=None, call=None, steps=None, scratch=0)


def why_not_onto_residual(spec: LinearSpec) -> str | None:
    if spec.residual is None or spec.bias is not None or spec.activation is not None:
        return "addmm adds one thing: here there is more than a residual, or none"
    return None


def _onto_residual(spec: LinearSpec, output: TensorType) -> Candidate:
    call = OperatorCall(aten.addmm.default, (RESIDUAL, X, transposed(spec)), out=aten.addmm.out)
    return from_call("addmm onto residual", spec, call, output, rows=rows_of(spec.x, "x"))


def why_not_plain(weight: TensorType) -> str | None:
    """Why oneDNN should not get this weight unpacked: with gaps between rows it uses a reference kernel, hundreds of
    times slower, or copies."""
    (n, k), (step_n, step_k) = weight.shape, weight.stride
    if (step_k == 1 and step_n == k) or (step_n == 1 and step_k == n):
        return None
    return "the weight has gaps"


def _onednn_call(spec: LinearSpec, weight: Operand) -> OperatorCall:
    bias = BIAS if spec.bias else None
    if spec.residual is not None:
        return OperatorCall(mkldnn._linear_pointwise.binary, (X, RESIDUAL, weight, bias, "add"))
    return OperatorCall(mkldnn._linear_pointwise.default, (X, weight, bias, *onednn_limits.attribute(spec.activation)))


def packed_names(spec: LinearSpec | ConvSpec) -> tuple[str, ...]:
    return ("packed", "bias") if spec.bias else ("packed",)


def _onednn_packing(spec: LinearSpec) -> Callable[..., Tensors]:
    rows = spec.x.shape[0]

    def prepare(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Tensors:
        packed = mkldnn._reorder_linear_weight(weight.detach().contiguous(), rows)
        return (packed,) if bias is None else (packed, bias)

    return prepare


def why_not_mkl_packed(spec: LinearSpec) -> str | None:
    if not spec.is_frozen:
        return "the weight may change"
    if spec.activation is not None:
        return "MKL's product takes no activation"
    if mkl.orientation(spec.x.shape, spec.x.stride) is None:
        return "x has gaps in both directions"
    if spec.bias is not None and spec.residual is not None:
        return "MKL's product adds one thing"
    if any(added is not None and added.stride[-1] != 1 for added in (spec.bias, spec.residual)):
        return "the added tensor has gaps between its numbers"
    return mkl.why_not(*spec.inputs.values())


def mkl_packing(rows: int) -> Callable[..., Tensors]:
    def prepare(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Tensors:
        packed = mkl.pack(weight.detach().t(), mkl.SIDE_B, other=rows)
        return (packed,) if bias is None else (packed, bias)

    return prepare


def _mkl_packed(spec: LinearSpec, output: TensorType) -> Candidate:
    (rows, depth), columns = spec.x.shape, spec.weight.shape[0]
    side = mkl.orientation(spec.x.shape, spec.x.stride)
    assert side is not None
    added = 0 if spec.bias is not None else None if spec.residual is None else spec.residual.stride[0]
    gemm = mkl.Gemm(rows, columns, depth, side, (mkl.PACKED, columns), added=added)
    make = native_product(gemm, a="x", b="packed", added="residual" if spec.residual is not None else "bias")
    operands = ("x", *packed_names(spec), *(["residual"] if spec.residual is not None else []))
    return from_steps(
        "mkl packed", spec, operands, output, make, prepare=mkl_packing(rows), prepared=packed_names(spec)
    )


def why_not_vector(spec: LinearSpec) -> str | None:
    if spec.x.shape[0] != 1:
        return "x has more than one row"
    if spec.residual is not None or spec.activation is not None:
        return "a matrix times a vector takes no epilogue"
    return "x or the result is empty" if 0 in (*spec.x.shape, *spec.weight.shape) else None


def _vector(spec: LinearSpec, output: TensorType) -> Candidate:
    (_, k), (n, _) = spec.x.shape, spec.weight.shape
    row = TensorType((n,), (1,), output.dtype, output.device)
    x = Operand("x", (k,), spec.x.stride[1:])
    if spec.bias is None:
        call = OperatorCall(aten.mv.default, (WEIGHT, x), out=aten.mv.out, result=row)
    else:
        call = OperatorCall(aten.addmv.default, (BIAS, WEIGHT, x), out=aten.addmv.out, result=row)
    return from_call("addmv" if spec.bias else "mv", spec, call, output)
