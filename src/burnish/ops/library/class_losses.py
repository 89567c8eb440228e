"""Losses against classes: the types of their results. Losses element by element are in `losses.py`.

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
    """Torch lays the gradient as `x` lies, and refuses to write to it where that is not row by row. In eager it always
    is: there `x` comes from torch's log_softmax, here from loops that lay it as what they read."""
    if x.type.is_contiguous:
        raise NoRule("it lies as torch wants it")
    return g("nll_loss2d_backward", grad_output, g("clone", x, memory_format=torch.contiguous_format), *rest)


@shape("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    x: TensorType, target: TensorType, weight: TensorType | None = None, reduction: int = 1
) -> TensorType:
    return copied(x) if reduction == 0 else fresh(x, ())
