"""Shape rules of classification losses (nll_loss, binary_cross_entropy).

    nll_loss_forward(f32[4, 10], i64[4], None, 1, -100)     f32[], f32[]

`reduction` is 0 for none, 1 for the mean, 2 for the sum.
"""

from __future__ import annotations

from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ..memory_format import copied
from ..operator_record import NoRule, decomposition, fresh, shape


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


@decomposition("aten.nll_loss2d_backward.default")
def nll_loss2d_backward(g: Any, grad_output: Any, x: Any, *rest: Any) -> Any:
    """torch gives the gradient the strides of `x`, and raises if they are not contiguous. In eager they always are: `x`
    comes from torch's log_softmax. Here it comes from loops that keep the strides of their operands."""
    if x.type.is_contiguous:
        raise NoRule("it lies as torch wants it")
    return g("nll_loss2d_backward", grad_output, g("clone", x, memory_format=torch.contiguous_format), *rest)


@shape("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    x: TensorType, target: TensorType, weight: TensorType | None = None, reduction: int = 1
) -> TensorType:
    return copied(x) if reduction == 0 else fresh(x, ())
