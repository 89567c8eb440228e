"""The limits of oneDNN through torch's fused operators (`torch.ops.mkldnn`): dtypes, strides, activations, residuals.

Shared by the linear and the convolution candidates.

    >>> why_not_fused(LinearSpec(x, weight, activation=Activation("relu")))
    'oneDNN turns a NaN into a bound of relu, eager hands it on'
"""

from __future__ import annotations

import torch

from ....concurrency.first_value_cache import once
from ....tensors.tensor_types import TensorType
from ..call_specs import Activation, ConvSpec, LinearSpec

_NAMES = {"silu": "swish"}
"""oneDNN's name of an activation, where it differs from torch's."""

MOST_ELEMENTS = 1 << 31
"""From this size on, indices do not fit the 32-bit integers inside some kernels."""


def attribute(activation: Activation | None) -> tuple[str, list[float], str]:
    """The three arguments that describe an activation: its name, its numbers, its algorithm."""
    if activation is None:
        return "none", [], ""
    return _NAMES.get(activation.name, activation.name), list(activation.parameters), activation.algorithm


def why_not_fused(spec: LinearSpec | ConvSpec) -> str | None:
    """Why oneDNN cannot compute the spec with its epilogue in one call."""
    return why_not(spec) or why_not_epilogue(spec)


def why_not_epilogue(spec: LinearSpec | ConvSpec) -> str | None:
    activation, residual = spec.activation, spec.residual
    if activation is None:
        return None
    if activation.name == "tanh":
        return "oneDNN's tanh is off by more than twice what eager's is"
    if spec.keeps_nan and not activation.keeps_nan:
        return f"oneDNN turns a NaN into a bound of {activation}, eager hands it on"
    if residual is not None and isinstance(spec, LinearSpec):
        return f"oneDNN's linear call takes a residual or an activation, not both ({activation})"
    if residual is not None and activation.name != "relu":
        return f"after a residual oneDNN's convolution takes relu alone, not {activation}"
    if residual is not None and spec.transposed:
        return "oneDNN's transposed convolution takes no residual"
    return None


def why_not(spec: LinearSpec | ConvSpec) -> str | None:
    """Why oneDNN cannot compute the product itself."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return "torch runs without oneDNN"
    for name, type in spec.inputs.items():
        if not type.is_on_host:
            return f"{name} is on {type.device}"
        if type.dtype is not spec.x.dtype:
            return f"{name} has another dtype than x"
        if type.numel >= MOST_ELEMENTS:
            return f"{name} has 2**31 elements or more"
        if type.numel == 0:
            return f"{name} is empty"
    if spec.bias is not None and not spec.bias.is_contiguous:
        return "the bias has gaps, which oneDNN does not see"
    if 0 in spec.output_shape:
        return "the result is empty"
    return why_not_dtype(spec.x)


def why_not_dtype(type: TensorType) -> str | None:
    if type.dtype is torch.float32:
        return None
    if type.dtype is torch.bfloat16:
        return None if _has_bfloat16() else "this machine has no bfloat16 kernels in oneDNN"
    return f"oneDNN's fused operators do not compute in {type.dtype}"


@once
def _has_bfloat16() -> bool:
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()
