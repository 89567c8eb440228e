"""Losses: the types of their results.

    nll_loss_forward(f32[4, 10], i64[4], None, 1, -100)     f32[], f32[]

`reduction` is 0 for none, 1 for the mean, 2 for the sum.
"""

from __future__ import annotations

from ..tensors.promotion import common_dtype
from ..tensors.strides import elementwise_stride
from ..tensors.types import TensorType
from .memory_format import copied
from .record import broadcast_shape, fresh, shape


@shape("aten.nll_loss_forward.default")
def nll_loss_forward(
    x: TensorType, target: TensorType, weight: TensorType | None, reduction: int, ignore_index: int
) -> tuple[TensorType, TensorType]:
    one_each = reduction == 0 and x.ndim == 2
    return fresh(x, x.shape[:1] if one_each else ()), fresh(x, ())


@shape("aten.nll_loss2d_forward.default")
def nll_loss2d_forward(
    x: TensorType, target: TensorType, weight: TensorType | None, reduction: int, ignore_index: int
) -> tuple[TensorType, TensorType]:
    return fresh(x, (x.shape[0], *x.shape[2:]) if reduction == 0 else ()), fresh(x, ())


@shape("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(grad_output: TensorType, x: TensorType, *_: object) -> TensorType:
    return fresh(x, x.shape)


def element_wise(*operands: TensorType) -> TensorType:
    sizes = broadcast_shape([operand.shape for operand in operands])
    return TensorType(sizes, elementwise_stride(sizes, operands), common_dtype(operands), operands[0].device)


@shape("aten.mse_loss.default", "aten.smooth_l1_loss.default", "aten.huber_loss.default")
def mse_loss(x: TensorType, target: TensorType, reduction: int = 1, *_: object) -> TensorType:
    each = element_wise(x, target)
    return each if reduction == 0 else fresh(each, ())


@shape("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    x: TensorType, target: TensorType, weight: TensorType | None = None, reduction: int = 1
) -> TensorType:
    return copied(x) if reduction == 0 else fresh(x, ())
