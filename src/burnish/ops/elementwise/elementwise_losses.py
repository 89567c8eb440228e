"""Element-wise losses (mse, smooth l1, huber, binary cross entropy) and their gradients.

    mse_loss(x, y, reduction=1)     =>     each = mse_loss(x, y, reduction=0)     mean each

`reduction` is 0 for none, 1 for the mean, 2 for the sum. A loss with a reduction is decomposed into the element-wise
loss and a sum or mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tensors.eager_strides import preserved_stride
from ...tensors.tensor_types import TensorType
from ..operator_record import NoRule, broadcast_shape, decomposition, fresh, record, shape
from ..scalar_ir import Scalar, maximum, select
from .activations import log_sigmoid
from .elementwise_record import Site, elementwise, operand, rounded, why_not_alike

NONE, MEAN, SUM = 0, 1, 2


# -- losses ------------------------------------------------------------------------------------------------------------


def loss(
    name: str, takes: str, cost: int, like: int | None = None, why_not: Callable[..., str | None] | None = None
) -> Callable:
    """Register a loss by its element rule, which takes the two tensors and the arguments after `reduction`."""

    def register(rule: Callable) -> Callable:
        def each(x: Any, y: Any, reduction: int = MEAN, *options: float) -> Scalar:
            if reduction != NONE:
                raise NoRule("a loss that is reduced")
            return rule(x, y, *options)

        elementwise(name, takes=takes, cost=cost, like=like, why_not=why_not, apart=(2, 3))(each)
        elements = record(name).shape
        assert elements is not None

        @shape(name)
        def type(x: TensorType, y: TensorType, reduction: int = MEAN, *options: float) -> TensorType:
            found = elements(x, y, reduction, *options)
            return found if reduction == NONE else fresh(found, ())

        @decomposition(name)
        def reduced(g: Any, x: Any, y: Any, reduction: int = MEAN, *options: float) -> Any:
            if reduction == NONE:
                raise NoRule("a loss that is not reduced")
            return g("mean" if reduction == MEAN else "sum", g(name.split(".")[1], x, y, NONE, *options))

        return rule

    return register


@loss("aten.mse_loss.default", "f", 2)
def mse_loss(x: Scalar, y: Scalar) -> Scalar:
    return (x - y) * (x - y)


@loss("aten.smooth_l1_loss.default", "f", 6)
def smooth_l1_loss(x: Scalar, y: Scalar, beta: float = 1.0) -> Scalar:
    gap = (x - y).abs()
    if beta == 0:
        return gap
    return select(gap < beta, gap * 0.5 * gap / beta, gap - 0.5 * beta)


@loss("aten.huber_loss.default", "f", 6, like=0, why_not=why_not_alike)
def huber_loss(x: Scalar, y: Scalar, delta: float = 1.0) -> Scalar:
    gap = (x - y).abs()
    return select(gap <= delta, gap * 0.5 * gap, (gap - 0.5 * delta) * delta)


@elementwise("aten.binary_cross_entropy_with_logits.default", takes="f", cost=30, apart=(4,))
def logits_loss(
    x: Scalar, target: Scalar, weight: Scalar | None = None, pos_weight: Scalar | None = None, reduction: int = MEAN
) -> Scalar:
    if reduction != NONE:
        raise NoRule("a loss that is reduced")
    likelihood = log_sigmoid(x)
    if pos_weight is not None:
        likelihood = likelihood * ((pos_weight - 1) * target + 1)
    found = (1 - target) * x - likelihood
    return found if weight is None else found * weight


@shape("aten.binary_cross_entropy_with_logits.default")
def logits_loss_type(
    x: TensorType,
    target: TensorType,
    weight: TensorType | None = None,
    pos_weight: TensorType | None = None,
    reduction: int = MEAN,
) -> TensorType:
    """Eager accumulates in place in `1 - target`, so the result has the target's strides."""
    given = [tensor for tensor in (x, target, weight, pos_weight) if tensor is not None]
    if broadcast_shape([tensor.shape for tensor in given]) != target.shape or why_not_alike(*given) is not None:
        raise NoRule("operands of several types")
    if not target.dtype.is_floating_point:
        raise NoRule("a target of integers")
    found = TensorType(target.shape, preserved_stride(target), target.dtype, target.device)
    return found if reduction == NONE else fresh(found, ())


@decomposition("aten.binary_cross_entropy_with_logits.default")
def reduced_logits_loss(
    g: Any, x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = MEAN
) -> Any:
    if reduction == NONE:
        raise NoRule("a loss that is not reduced")
    each = g("binary_cross_entropy_with_logits", x, target, weight, pos_weight, NONE)
    return g("mean" if reduction == MEAN else "sum", each)


# -- their gradients ---------------------------------------------------------------------------------------------------


def share(reduction: int, site: Site | None) -> float:
    """The reduction's factor in the gradient of each element."""
    if reduction != MEAN:
        return 1.0
    if site is None:
        raise NoRule("a mean over an unknown number of elements")
    return 1 / site.numel if site.numel else float("inf")


def why_not_gradient(grad: TensorType, x: TensorType, y: TensorType, *options: Any) -> str | None:
    return "targets of another shape" if x.shape != y.shape else why_not_alike(grad, x, y, *options)


@elementwise("aten.mse_loss_backward.default", takes="f", cost=3, apart=(3,), contiguous=True, why_not=why_not_gradient)
def mse_loss_backward(grad: Scalar, x: Scalar, y: Scalar, reduction: int, site: Site | None = None) -> Scalar:
    return (x - y) * (2 * share(reduction, site)) * grad


@elementwise(
    "aten.smooth_l1_loss_backward.default", takes="f", cost=8, apart=(3, 4), contiguous=True, why_not=why_not_gradient
)
def smooth_l1_loss_backward(
    grad: Scalar, x: Scalar, y: Scalar, reduction: int, beta: float, site: Site | None = None
) -> Scalar:
    gap, part = x - y, share(reduction, site)
    outer = select(gap <= -beta, operand(-part, x.dtype), operand(part, x.dtype)) * grad
    if beta == 0:
        return select(gap.eq(0), 0, outer)
    return select((gap <= -beta) | (gap >= beta), outer, gap * part / beta * grad)


@elementwise(
    "aten.huber_loss_backward.default", takes="f", cost=8, apart=(3, 4), contiguous=True, why_not=why_not_gradient
)
def huber_loss_backward(
    grad: Scalar, x: Scalar, y: Scalar, reduction: int, delta: float, site: Site | None = None
) -> Scalar:
    gap, part = x - y, share(reduction, site)
    outer = select(gap <= -delta, operand(-part, x.dtype), operand(part, x.dtype)) * grad * delta
    return select((gap <= -delta) | (gap >= delta), outer, gap * part * grad)


def why_not_entropy(grad: TensorType, x: TensorType, *others: Any) -> str | None:
    return "gradients of another shape" if grad.shape not in ((), x.shape) else why_not_gradient(grad, x, *others)


@elementwise(
    "aten.binary_cross_entropy_backward.default", takes="f", cost=8, apart=(4,), like=1, why_not=why_not_entropy
)
def binary_cross_entropy_backward(
    grad: Scalar, x: Scalar, y: Scalar, weight: Scalar | None = None, reduction: int = MEAN, site: Site | None = None
) -> Scalar:
    slope = grad * (x - y) / maximum((1 - x) * x, rounded(1e-12, "f32"))
    slope = slope if weight is None else slope * weight
    return slope * share(reduction, site) if reduction == MEAN else slope
