"""Times of eager's kernel for the gradients of a convolution, for a given layout.

    seconds_of(ConvBackwardSpec.of(conv, (True, True, False)), 0.003)       measured once, and remembered

There is one candidate; the choice is the layout. oneDNN, which implements the operator, reads channels-last memory
directly, and converts contiguous memory before and after.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ....ops.library.convolution_shape_rules import convolution_backward
from ....ops.operator_record import NoRule, arguments_of
from ....tensors.tensor_types import TensorType, contiguous_stride
from ...layouts.channels_last_strides import channels_last_stride, is_channels_last
from ..autotune_library_calls import SMALL, estimate, key_of, memory
from ..call_specs import ConvSpec
from ..candidate import Candidate, Operand, OperatorCall, from_call
from ..shrink_benchmarks import LARGE, resized, with_channels_of_series

NAME = "convolution_backward"


@dataclass(frozen=True, slots=True, repr=False)
class ConvBackwardSpec:
    conv: ConvSpec
    wanted: tuple[bool, bool, bool]
    """The gradients of x, the weight, the bias."""

    @property
    def grad(self) -> TensorType:
        shape = self.conv.output_shape
        stride = channels_last_stride(shape) if is_channels_last(self.conv.x) else contiguous_stride(shape)
        return TensorType(shape, stride, self.conv.x.dtype, self.conv.x.device)

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {"grad": self.grad, "x": self.conv.x, "weight": self.conv.weight}

    @property
    def flops(self) -> int:
        return self.conv.flops * sum(self.wanted[:2])

    def __repr__(self) -> str:
        return f"gradients {self.wanted} of {self.conv}"


def seconds_of(spec: ConvBackwardSpec, seconds: float) -> float | None:
    """None where it was not measured."""
    conv = spec.conv
    if spec.flops < SMALL or not conv.x.is_on_host or not any(spec.wanted[:2]):
        return None
    like = with_channels_of_series(conv)
    assert isinstance(like, ConvSpec)
    small = spec if like is conv else replace(spec, conv=like)
    images = max(1, conv.x.shape[0] * LARGE // max(small.flops, 1))
    if images < conv.x.shape[0]:
        small = replace(small, conv=replace(like, x=resized(like.x, 0, images)))
    try:
        candidates = [candidate_of(small)]
    except NoRule:
        return None
    found = memory.measured(key_of(small), lambda: candidates, seconds)  # type: ignore[arg-type]
    if found is None or NAME not in found.least:
        return None
    return estimate(candidate_of(spec), found.least[NAME], small)  # type: ignore[arg-type]


def candidate_of(spec: ConvBackwardSpec) -> Candidate:
    """The call, with the first of the wanted results as its output."""
    conv = spec.conv
    channels = [conv.output_channels] if spec.wanted[2] else None
    arguments = (
        channels,
        list(conv.stride),
        list(conv.padding),
        list(conv.dilation),
        conv.transposed,
        list(conv.output_padding),
        conv.groups,
        list(spec.wanted),
    )
    which = spec.wanted.index(True)
    types = (spec.grad, conv.x, conv.weight)
    output = convolution_backward(arguments_of("aten.convolution_backward.default", (*types, *arguments), {}))[which]
    assert output is not None
    call = OperatorCall(
        torch.ops.aten.convolution_backward.default,
        (Operand("grad"), Operand("x"), Operand("weight"), *arguments),
        which=which,
    )
    return from_call(NAME, spec, call, output)  # type: ignore[arg-type]
