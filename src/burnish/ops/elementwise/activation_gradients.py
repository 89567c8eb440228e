"""Gradients of activation functions, with the formulas of eager's kernels.

>>> print(threshold_backward(grad, x, 0))
select(le(x, 0.0), 0.0, grad)
"""

from __future__ import annotations

import math
from typing import Any

from ...tensors.eager_strides import elementwise_stride
from ...tensors.tensor_types import TensorType
from ..operator_record import NoRule, broadcast_shape, decomposition, shape
from ..scalar_ir import Scalar, cast, const, fma, select
from .activations import GELU_CUBE, GELU_INNER, gelu_inner, scaled
from .elementwise_record import Site, elementwise, operand, refuse_nan, rounded, why_not_alike


@elementwise("aten.sigmoid_backward.default", takes="fc", cost=3)
def sigmoid_backward(grad: Scalar, y: Scalar) -> Scalar:
    return grad * (1 - y) * y


@elementwise("aten.tanh_backward.default", takes="fc", cost=3)
def tanh_backward(grad: Scalar, y: Scalar) -> Scalar:
    return grad * fma(-y, y, const(1, y.dtype))


@elementwise("aten.threshold_backward.default", apart=(2,), takes="if", cost=2, order=(1, 0))
def threshold_backward(grad: Scalar, x: Scalar, threshold: float) -> Scalar:
    return select(x <= threshold, 0, grad)


@elementwise("aten.gelu_backward.default", takes="f", cost=32, why_not=why_not_alike)
def gelu_backward(grad: Scalar, x: Scalar, approximate: str = "none") -> Scalar:
    if approximate == "tanh":
        bent = gelu_inner(x).tanh()
        left = 0.5 * (1 + bent)
        right = 0.5 * x * (1 - bent * bent) * (GELU_INNER * (1 + 3 * GELU_CUBE * x * x))
        return grad * (left + right)
    cdf = 0.5 * (1 + (x * math.sqrt(0.5)).erf())
    pdf = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return grad * (cdf + x * pdf)


@elementwise("aten.silu_backward.default", takes="fc", cost=18)
def silu_backward(grad: Scalar, x: Scalar) -> Scalar:
    gate = x.sigmoid()
    return grad * gate * (1 + x * (1 - gate))


@elementwise("aten.mish_backward.default", takes="f", cost=60, why_not=why_not_alike)
def mish_backward(grad: Scalar, x: Scalar) -> Scalar:
    bent = x.exp().log1p().tanh()
    return grad * (bent + x * x.sigmoid() * (1 - bent * bent))


@elementwise("aten.hardswish_backward.default", takes="f", cost=6)
def hardswish_backward(grad: Scalar, x: Scalar) -> Scalar:
    return select(x >= 3, grad, select(x <= -3, 0, grad * (x / 3 + 0.5)))


@elementwise("aten.hardsigmoid_backward.default", takes="f", cost=4)
def hardsigmoid_backward(grad: Scalar, x: Scalar) -> Scalar:
    return select((x > -3) & (x < 3), grad * rounded(1 / 6, "f32"), 0)


@elementwise("aten.hardtanh_backward.default", apart=(2, 3), takes="f", cost=4)
def hardtanh_backward(grad: Scalar, x: Scalar, low: float, high: float) -> Scalar:
    refuse_nan(low, high)
    return select((x > low) & (x < high), grad, 0)


@elementwise("aten.leaky_relu_backward.default", apart=(2, 3), takes="f", cost=2, order=(1, 0))
def leaky_relu_backward(grad: Scalar, x: Scalar, negative_slope: float, self_is_result: bool) -> Scalar:
    return select(x > 0, grad, grad * negative_slope)


@elementwise("aten.elu_backward.default", apart=(1, 2, 3, 4), takes="f", cost=16)
def elu_backward(grad: Scalar, alpha: float, scale: float, input_scale: float, is_result: bool, x: Scalar) -> Scalar:
    if is_result:
        negative = scaled(grad, input_scale) * (x + alpha * scale)
    else:
        negative = grad * (operand(input_scale, x.dtype) * (alpha * scale)) * scaled(x, input_scale).exp()
    return select(x > 0, scaled(grad, scale), negative)


@elementwise("aten.softplus_backward.default", apart=(2, 3), takes="f", cost=16)
def softplus_backward(grad: Scalar, x: Scalar, beta: float, threshold: float) -> Scalar:
    bent = scaled(x, beta)
    risen = bent.exp()
    return select(bent > threshold, grad, grad * risen / (risen + 1))


@elementwise("aten.log_sigmoid_backward.default", takes="f", cost=6, like=0, why_not=why_not_alike)
def log_sigmoid_backward(grad: Scalar, x: Scalar, buffer: Scalar) -> Scalar:
    """`buffer` is exp(-|x|), from the forward pass."""
    share = buffer / (1 + buffer)
    return grad * select(x < 0, 1 - share, share)


@decomposition("aten._prelu_kernel_backward.default")
def prelu_kernel_backward(g: Any, grad: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    positive = g("gt.Scalar", x, 0)
    to_x = g("where.self", positive, grad, g("mul.Tensor", weight, grad))
    return to_x, g("where.ScalarSelf", positive, 0, g("mul.Tensor", x, grad))


@shape("aten._prelu_kernel_backward.default")
def prelu_kernel_backward_type(grad: TensorType, x: TensorType, weight: TensorType) -> tuple[TensorType, TensorType]:
    if why_not_alike(grad, x, weight) is not None or not grad.dtype.is_floating_point:
        raise NoRule("operands of several types")
    sizes = broadcast_shape([x.shape, weight.shape, grad.shape])
    found = TensorType(sizes, elementwise_stride(sizes, [x, weight, grad]), x.dtype, x.device)
    return found, found


@elementwise("aten.logit_backward.default", apart=(2,), takes="f", cost=6)
def logit_backward(grad: Scalar, x: Scalar, eps: float | None = None, site: Site | None = None) -> Scalar:
    refuse_nan(eps)
    slope = grad / (x * (1 - x))
    if eps is None or eps < 0:
        return select((x >= 0) & (x <= 1), slope, math.nan)
    low = operand(eps, x.dtype, site)
    return select((x >= low) & (x <= operand(1 - low.payload, x.dtype, site)), slope, 0)


@elementwise("aten.softshrink_backward.default", "aten.hardshrink_backward.default", apart=(2,), takes="f", cost=3)
def shrink_backward(grad: Scalar, x: Scalar, lambd: float, site: Site | None = None) -> Scalar:
    refuse_nan(lambd)
    bound = operand(lambd, x.dtype, site)
    return select((x < -bound) | (x > bound), grad, 0)


def why_not_dropped(grad: TensorType, mask: TensorType, scale: float) -> str | None:
    return None if grad.shape == mask.shape and grad.numel else "shapes that differ, or nothing"


@elementwise("aten.native_dropout_backward.default", apart=(1, 2), takes="f", cost=2, why_not=why_not_dropped)
def native_dropout_backward(grad: Scalar, mask: Scalar, scale: float) -> Scalar:
    return grad * cast(mask, grad.dtype) * scale
