"""Activation functions, with the formulas of eager's kernels.

    >>> print(silu(x))
    div(x, add(exp(neg(x)), 1.0))

Numbers such as slopes and bounds are used in the compute dtype (f32 for half precisions), as in eager.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from ...tensors.dtypes import WIDE
from ...tensors.eager_strides import elementwise_stride
from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import compute_dtype
from ...tensors.views.view_maps import Slice
from ..operator_record import NoRule, decomposition, fresh, shape, wrapped_dim
from ..scalar_ir import Scalar, const, is_nan, minimum, select
from .elementwise_record import Site, clamped, elementwise, operand, refuse_nan, why_not_alike

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946
GELU_INNER = math.sqrt(2 / math.pi)
GELU_CUBE = 0.044715


@elementwise("aten.relu.default", takes="if")
def relu(x: Scalar) -> Scalar:
    return clamped(x, 0, None)


@elementwise("aten.relu6.default", promotion="first", takes="if", cost=2, like=0)
def relu6(x: Scalar) -> Scalar:
    return clamped(x, 0, 6)


def why_not_hardtanh(x: TensorType, low: float = -1, high: float = 1) -> str | None:
    if x.dtype is torch.uint8 and low < 0:
        return "a bound below all numbers of the dtype"
    return "the lower bound is the higher one" if low > high else None


@elementwise("aten.hardtanh.default", promotion="first", takes="if", cost=2, like=0, why_not=why_not_hardtanh)
def hardtanh(x: Scalar, low: float = -1, high: float = 1) -> Scalar:
    refuse_nan(low, high)
    return clamped(x, low, high)


@elementwise("aten.gelu.default", takes="f", cost=20)
def gelu(x: Scalar, approximate: str = "none") -> Scalar:
    if approximate == "tanh":
        return x * 0.5 * (1 + gelu_inner(x).tanh())
    return x * 0.5 * (1 + (x * math.sqrt(0.5)).erf())


def gelu_inner(x: Scalar) -> Scalar:
    return (x + x * x * x * GELU_CUBE) * GELU_INNER


@elementwise("aten.silu.default", takes="fc", cost=14)
def silu(x: Scalar) -> Scalar:
    return x / (1 + (-x).exp())


@elementwise("aten.mish.default", takes="f", cost=40)
def mish(x: Scalar) -> Scalar:
    return x * x.exp().log1p().tanh()


@elementwise("aten.hardswish.default", takes="f", cost=6)
def hardswish(x: Scalar) -> Scalar:
    return x * clamped(x + 3, 0, 6) / 6


@elementwise("aten.hardsigmoid.default", takes="f", cost=5)
def hardsigmoid(x: Scalar) -> Scalar:
    return clamped(x + 3, 0, 6) / 6


@elementwise("aten.leaky_relu.default", promotion="first", takes="f", cost=2)
def leaky_relu(x: Scalar, negative_slope: float = 0.01) -> Scalar:
    return select(x > 0, x, x * negative_slope)


@elementwise("aten._prelu_kernel.default", takes="f", cost=2, like=0, why_not=why_not_alike)
def prelu(x: Scalar, weight: Scalar) -> Scalar:
    return select(x > 0, x, weight * x)


@elementwise("aten.elu.default", promotion="first", takes="f", cost=17)
def elu(x: Scalar, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Scalar:
    negative = scaled(scaled(x, input_scale).expm1(), alpha * scale)
    return select(x < 0, negative, scaled(x, scale))


def scaled(x: Scalar, factor: float) -> Scalar:
    return x if factor == 1 else x * factor


@elementwise(
    "aten.celu.default",
    promotion="first",
    takes="f",
    cost=17,
    why_not=lambda x, alpha=1: None if alpha else "a division by zero",
)
def celu(x: Scalar, alpha: float = 1) -> Scalar:
    return elu(x, alpha, 1, 1 / alpha)


@elementwise("aten.selu.default", takes="f", cost=17)
def selu(x: Scalar) -> Scalar:
    return elu(x, SELU_ALPHA, SELU_SCALE)


@elementwise("aten.softplus.default", promotion="first", takes="f", cost=26)
def softplus(x: Scalar, beta: float = 1, threshold: float = 20) -> Scalar:
    bent = scaled(x, beta)
    soft = bent.exp().log1p()
    return select(bent > threshold, x, soft if beta == 1 else soft / beta)


@elementwise("aten.threshold.default", promotion="first", takes="if", cost=2, fits=True)
def threshold(x: Scalar, threshold: float, value: float) -> Scalar:
    return select(x <= threshold, value, x)


@elementwise("aten.hardshrink.default", promotion="first", takes="f", cost=3)
def hardshrink(x: Scalar, lambd: float = 0.5, site: Site | None = None) -> Scalar:
    bound = operand(lambd, x.dtype, site)
    return select((x >= -bound) & (x <= bound), 0, x)


@functools.cache
def rounds_bound() -> bool:
    """Whether eager's softshrink of a half precision rounds its bound to that dtype. torch 2.11 does not on CPUs."""
    return not torch.nn.functional.softshrink(torch.tensor(0.1, dtype=torch.bfloat16, device="cpu"), 0.1).item()


@elementwise("aten.softshrink.default", promotion="first", takes="f", cost=4)
def softshrink(x: Scalar, lambd: float = 0.5, site: Site | None = None) -> Scalar:
    """NaN stays NaN."""
    bound = operand(lambd, x.dtype, site)
    if site is not None and site.dtype in WIDE and bound.payload != lambd and not rounds_bound():
        raise NoRule(f"{lambd} is not a number of {site.dtype}")
    return select(x > bound, x - bound, select(x < -bound, x + bound, select(is_nan(x), x, 0)))


# -- several results, and glu ------------------------------------------------------------------------------------------


def log_sigmoid(x: Scalar) -> Scalar:
    return minimum(x, const(0, x.dtype)) - (-x.abs()).exp().log1p()


@decomposition("aten.log_sigmoid_forward.default")
def log_sigmoid_forward(g: Any, x: Any) -> tuple[Any, Any]:
    """The second result, exp(-|x|), is saved for the gradient."""
    wide = g.convert(x, compute_dtype(x.dtype))
    kept = g("exp", g("neg", g("abs", wide)))
    found = g("sub.Tensor", g("clamp_max", wide, 0), g("log1p", kept))
    return g.convert(found, x.dtype), g.convert(kept, x.dtype)


@shape("aten.log_sigmoid_forward.default")
def log_sigmoid_forward_type(x: TensorType) -> tuple[TensorType, TensorType]:
    if not x.dtype.is_floating_point or not x.device_facts.keeps_log_sigmoid:
        raise NoRule("integers, or a device that keeps nothing for the gradient")
    return fresh(x, x.shape), fresh(x, x.shape)


@decomposition("aten.glu.default")
def glu(g: Any, x: Any, dim: int = -1) -> Any:
    """One half of the tensor, multiplied by the sigmoid of the other half."""
    dim = wrapped_dim(dim, x.ndim)
    half = x.shape[dim] // 2
    kept, gate = (g.convert(g.view(x, Slice(dim, start, 1, half)), compute_dtype(x.dtype)) for start in (0, half))
    return g.convert(g("mul.Tensor", kept, g("sigmoid", gate)), x.dtype)


@shape("aten.glu.default")
def glu_type(x: TensorType, dim: int = -1) -> TensorType:
    if not x.ndim or not x.dtype.is_floating_point:
        raise NoRule("a number, or integers")
    dim = wrapped_dim(dim, x.ndim)
    if x.shape[dim] % 2:
        raise NoRule("an odd size cannot be halved")
    shape = (*x.shape[:dim], x.shape[dim] // 2, *x.shape[dim + 1 :])
    half = TensorType(shape, x.stride, x.dtype, x.device)
    return TensorType(shape, elementwise_stride(shape, [half, half]), x.dtype, x.device)
