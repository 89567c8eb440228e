"""The candidates of a convolution.

    convolution               eager, residual and activation after it in torch's operators
    onednn                    oneDNN's fused call on the weight as it is
    onednn packed             the same on a weight in oneDNN's own layout
    onednn packed into residual   adds to the residual in place
    pointwise …               a 1×1 window: every way to compute the equivalent linear layer, on channels-last memory
    pointwise mm, mkl …       the same on contiguous memory: weight @ pixels
    own packed                our own kernels, see `own_kernels.own_matmul_and_convolution`
    own winograd              a 3×3 window with fewer multiplications, see `own_kernels.winograd_convolution`

Layouts: a candidate takes x in the layout of the spec. With a packed weight oneDNN computes in channels-last: so its
result has that layout, and x is copied if it has another. To compare layouts, use `in_channels_last(spec)` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from ....foundation.torch_private import conv_determine_backend_memory_format, select_conv_backend
from ....ops.layouts_eager_accepts import reads_gaps
from ....tensors.tensor_types import TensorType, contiguous_stride, has_stride
from ....tensors.weight_packing import Panels
from ...layouts.channels_last_strides import channels_last_stride, is_channels_last, with_axis
from ..call_specs import ConvSpec, LinearSpec
from ..candidate import Candidate, Operand, OperatorCall, Tensors, from_call, from_steps
from ..own_kernels.own_matmul_and_convolution import NAME as OWN
from ..own_kernels.own_matmul_and_convolution import own_convolution
from ..own_kernels.winograd_convolution import own_winograd
from . import mkl, onednn_limits
from .linear import BIAS, PACKED, RESIDUAL, WEIGHT, X, linear_candidates, native_product, packed_names, with_epilogue

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn


def convolution_candidates(spec: ConvSpec) -> Iterator[Candidate]:
    """All ways to compute the spec, eager's first."""
    yield eager(spec)
    if onednn_limits.why_not_fused(spec) is None:
        yield from _onednn(spec)
    if why_not_pointwise(spec) is None:
        if is_channels_last(spec.x):
            yield from _pointwise(spec)
        elif spec.x.is_contiguous:
            yield from _pointwise_contiguous(spec)
    own = own_convolution(spec)
    if own is not None:
        yield own
    winograd = own_winograd(spec)
    if winograd is not None:
        yield winograd


def in_channels_last(spec: ConvSpec) -> ConvSpec:
    """The same convolution with x (and the residual) in channels-last layout."""

    def turned(type: TensorType) -> TensorType:
        return replace(type, stride=channels_last_stride(type.shape))

    return replace(spec, x=turned(spec.x), residual=spec.residual and turned(spec.residual))


def eager(spec: ConvSpec) -> Candidate:
    bias = BIAS if spec.bias else None
    call = OperatorCall(
        aten.convolution.default,
        (
            X,
            WEIGHT,
            bias,
            list(spec.stride),
            list(spec.padding),
            list(spec.dilation),
            spec.transposed,
            list(spec.output_padding),
            spec.groups,
        ),
    )
    return with_epilogue(spec, from_call("convolution", spec, call, _output(spec, eager_stride(spec))))


def eager_stride(spec: ConvSpec) -> tuple[int, ...]:
    """Strides of the result of `aten.convolution` on the CPU. They depend on the kernel that torch picks, so torch is
    asked, with tensors whose memory is never touched. One dimension is computed as two, from a contiguous x. With a
    single channel that x may also look channels-last."""
    if spec.dims == 1:
        x = spec.x
        if not has_stride(x, contiguous_stride(x.shape)):
            x = TensorType.contiguous(x.shape, x.dtype, x.device)
        outer, channel, _, step = eager_stride(in_two_dimensions(replace(spec, x=x, residual=None)))
        return outer, channel, step
    if not spec.x.is_on_host or 0 in spec.x.shape:
        kept = is_channels_last(spec.x) or is_channels_last(spec.weight)
    else:
        x, weight, bias = (
            type and torch.empty_strided(type.shape, type.stride, dtype=type.dtype, device=type.device)
            for type in (spec.x, spec.weight, spec.bias)
        )
        backend = select_conv_backend(
            x,
            weight,
            bias,
            spec.stride,
            spec.padding,
            spec.dilation,
            spec.transposed,
            spec.output_padding,
            spec.groups,
            None,
        )
        kept = conv_determine_backend_memory_format(x, weight, backend) is not torch.contiguous_format
    return channels_last_stride(spec.output_shape) if kept else contiguous_stride(spec.output_shape)


def onednn_stride(spec: ConvSpec) -> tuple[int, ...]:
    """Strides of oneDNN's result for an unpacked weight: channels-last where x or the weight is."""
    if spec.dims == 1:
        outer, channel, _, step = onednn_stride(in_two_dimensions(spec))
        return outer, channel, step
    if is_channels_last(spec.x) or is_channels_last(spec.weight):
        return channels_last_stride(spec.output_shape)
    return contiguous_stride(spec.output_shape)


def _output(spec: ConvSpec, stride: tuple[int, ...]) -> TensorType:
    return TensorType(spec.output_shape, stride, spec.x.dtype, spec.x.device)


# oneDNN ---------------------------------------------------------------------------------------------------------------


def _onednn(spec: ConvSpec) -> Iterator[Candidate]:
    yield _onednn_candidate("onednn", spec, WEIGHT, onednn_stride(spec))
    if not spec.is_frozen:
        return
    stride = channels_last_stride(spec.output_shape)
    packing = {"prepare": _packing(spec), "prepared": packed_names(spec)}
    yield _onednn_candidate("onednn packed", spec, PACKED, stride, **packing)


def _onednn_candidate(name: str, spec: ConvSpec, weight: Operand, stride: tuple[int, ...], **rest) -> Candidate:
    """Passes one dimension to oneDNN as two, the first of size 1."""
    output = _output(spec, stride)
    if spec.dims > 1:
        return from_call(name, spec, _onednn_call(spec, weight), output, **rest)
    call = _onednn_call(in_two_dimensions(spec), weight)
    types = {operand: with_axis(type) for operand, type in spec.inputs.items() if type.ndim == 3}
    arguments = tuple(
        Operand(a.name, types[a.name].shape, types[a.name].stride) if isinstance(a, Operand) and a.name in types else a
        for a in call.arguments
    )
    return from_call(name, spec, replace(call, arguments=arguments, result=with_axis(output)), output, **rest)


def in_two_dimensions(spec: ConvSpec) -> ConvSpec:
    """A convolution of one dimension as one of two."""
    return replace(
        spec,
        x=with_axis(spec.x),
        weight=with_axis(spec.weight),
        residual=spec.residual and with_axis(spec.residual),
        stride=(1, *spec.stride),
        padding=(0, *spec.padding),
        dilation=(1, *spec.dilation),
        output_padding=(0, *spec.output_padding),
    )


def _onednn_call(spec: ConvSpec, weight: Operand) -> OperatorCall:
    bias = BIAS if spec.bias else None
    stride, padding, dilation = list(spec.stride), list(spec.padding), list(spec.dilation)
    name, numbers, algorithm = onednn_limits.attribute(spec.activation)
    if spec.transposed:
        return OperatorCall(
            mkldnn._convolution_transpose_pointwise.default,
            (
                X,
                weight,
                bias,
                padding,
                list(spec.output_padding),
                stride,
                dilation,
                spec.groups,
                name,
                numbers,
                algorithm,
            ),
        )
    if spec.residual is None:
        return OperatorCall(
            mkldnn._convolution_pointwise.default,
            (X, weight, bias, padding, stride, dilation, spec.groups, name, numbers, algorithm),
        )
    after = (None, [], None) if spec.activation is None else (name, numbers, algorithm)
    return OperatorCall(
        mkldnn._convolution_pointwise.binary,
        (X, RESIDUAL, weight, bias, padding, stride, dilation, spec.groups, "add", None, *after),
    )


def _packing(spec: ConvSpec) -> Callable[..., Tensors]:
    has_one = spec.dims == 1
    if has_one:
        spec = in_two_dimensions(spec)
    window = (list(spec.stride), list(spec.dilation), spec.groups, list(spec.x.shape))
    padding, output_padding = list(spec.padding), list(spec.output_padding)

    def prepare(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Tensors:
        weight = weight.detach().unsqueeze(2) if has_one else weight.detach()
        if spec.transposed:
            packed = mkldnn._reorder_convolution_transpose_weight(weight, padding, output_padding, *window)
        else:
            packed = mkldnn._reorder_convolution_weight(weight, padding, *window)
        return (packed,) if bias is None else (packed, bias)

    return prepare


# 1x1 windows ----------------------------------------------------------------------------------------------------------


def why_not_pointwise(spec: ConvSpec) -> str | None:
    if set(spec.weight.shape[2:]) != {1} or set(spec.stride) != {1} or set(spec.padding) != {0}:
        return "the window covers more than one pixel"
    if spec.transposed or spec.groups != 1:
        return "the channels are not one matrix"
    if any(type.numel == 0 for type in spec.inputs.values()):
        return "something is empty"
    return None


def _pointwise(spec: ConvSpec) -> Iterator[Candidate]:
    """The linear layer over the pixels, with x as [pixels, channels]."""
    (batch, channels), outputs = spec.x.shape[:2], spec.output_channels
    stride = channels_last_stride(spec.output_shape)
    if spec.residual is not None and not has_stride(spec.residual, stride):
        return
    pixels = batch * _pixels(spec)

    def matrix(type: TensorType, rows: int, columns: int) -> TensorType:
        return TensorType.contiguous((rows, columns), type.dtype, type.device)

    x, weight = matrix(spec.x, pixels, channels), _as_matrix(spec.weight)
    residual = spec.residual and matrix(spec.residual, pixels, outputs)
    linear = LinearSpec(x, weight, spec.bias, residual, spec.activation, spec.is_frozen, spec.keeps_nan)
    names = [name for name, type in spec.inputs.items() if type.ndim > 2]
    for candidate in linear_candidates(linear):
        if candidate.name == OWN:
            continue  # takes the image as it is
        yield _seen_as(spec, candidate, names, _output(spec, stride))


def _pixels(spec: ConvSpec) -> int:
    pixels = 1
    for size in spec.x.shape[2:]:
        pixels *= size
    return pixels


def _as_matrix(weight: TensorType) -> TensorType:
    return TensorType(weight.shape[:2], weight.stride[:2], weight.dtype, weight.device)


def _seen_as(spec: ConvSpec, candidate: Candidate, names: list[str], output: TensorType) -> Candidate:
    """A linear layer's candidate that takes and gives the convolution's tensors."""
    types = candidate.spec.inputs
    views = [types[name] if name in names else None for name in candidate.operands]
    matrix, prepare = candidate.output, candidate.prepare
    product, product_into = candidate.run, candidate.run_into

    def seen(tensors: Tensors) -> list[torch.Tensor]:
        return [t if v is None else t.as_strided(v.shape, v.stride) for t, v in zip(tensors, views, strict=True)]

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return product(*seen(tensors)).as_strided(output.shape, output.stride)

    def run_into(out: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        product_into(out.as_strided(matrix.shape, matrix.stride), *seen(tensors))
        return out

    def prepare_matrix(weight: torch.Tensor, *bias: torch.Tensor) -> Tensors:
        return prepare(weight.detach().flatten(1), *bias)

    call = candidate.call
    if isinstance(call, OperatorCall):
        arguments = tuple(_on_memory(a, types) if isinstance(a, Operand) else a for a in call.arguments)
        call = replace(call, arguments=arguments, result=call.result or matrix)
    return replace(
        candidate,
        name=f"pointwise {candidate.name}",
        spec=spec,
        run=run,
        output=output,
        call=call,
        run_into=product_into and run_into,
        prepare=prepare if prepare is None or isinstance(prepare, Panels) else prepare_matrix,
    )


def _on_memory(operand: Operand, types: dict[str, TensorType]) -> Operand:
    """The operand with explicit strides, for a caller that holds tensors of another shape."""
    if operand.shape is not None or operand.name not in types:
        return operand
    return Operand(operand.name, types[operand.name].shape, types[operand.name].stride)


def _pointwise_contiguous(spec: ConvSpec) -> Iterator[Candidate]:
    """weight @ x for every image, with x as [channels, pixels]."""
    if spec.bias is not None or spec.residual is not None or spec.activation is not None:
        return
    (batch, channels), outputs, pixels = spec.x.shape[:2], spec.output_channels, _pixels(spec)
    output = _output(spec, contiguous_stride(spec.output_shape))
    stride = spec.weight.stride[:2]
    if batch == 1 and not reads_gaps(_as_matrix(spec.weight)):
        call = OperatorCall(
            aten.mm.default,
            (Operand("weight", (outputs, channels), stride), Operand("x", (channels, pixels), (pixels, 1))),
            out=aten.mm.out,
            result=TensorType.contiguous((outputs, pixels), output.dtype, output.device),
        )
        yield from_call("pointwise mm", spec, call, output)
    else:
        call = OperatorCall(
            aten.bmm.default,
            (
                Operand("weight", (batch, outputs, channels), (0, *stride)),
                Operand("x", (batch, channels, pixels), (channels * pixels, pixels, 1)),
            ),
            out=aten.bmm.out,
            result=TensorType.contiguous((batch, outputs, pixels), output.dtype, output.device),
        )
        yield from_call("pointwise bmm", spec, call, output)
    if spec.is_frozen and mkl.why_not(spec.x, spec.weight) is None:
        yield _mkl_packed(spec, output)


def _mkl_packed(spec: ConvSpec, output: TensorType) -> Candidate:
    (batch, channels), outputs, pixels = spec.x.shape[:2], spec.output_channels, _pixels(spec)
    side = mkl.orientation((channels, pixels), (pixels, 1))
    assert side is not None
    gemm = mkl.Gemm(
        outputs,
        pixels,
        channels,
        (mkl.PACKED, channels),
        side,
        count=batch,
        batch=(0, channels * pixels, outputs * pixels),
    )

    def prepare(weight: torch.Tensor) -> Tensors:
        return (mkl.pack(weight.detach().flatten(1), mkl.SIDE_A, other=pixels),)

    return from_steps(
        "pointwise mkl packed",
        spec,
        ("x", "packed"),
        output,
        native_product(gemm, a="packed", b="x"),
        prepare=prepare,
        prepared=("packed",),
    )
