"""Replaces cuDNN's batch norms, which torch chooses on a GPU, by the generic operators, which can be fused.

    y, mean, rstd, reserve = aten.cudnn_batch_norm.default x, w, b, running_mean, running_var, True, 0.1, 1e-05
        =>
    y, mean, rstd = aten._native_batch_norm_legit.default x, w, b, running_mean, running_var, True, 0.1, 1e-05
    reserve       = aten.empty.memory_format [0]

This happens during the trace, because cuDNN's schemas also do not declare the write of running statistics. The reserve
space that cuDNN would keep for the gradient is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def batch_norm(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> tuple:
    found = aten.native_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return *found, aten.empty([0], dtype=torch.uint8, device=x.device)


def batch_norm_backward(
    x: Any,
    grad: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_rstd: Any,
    eps: float,
    reserve: Any,
) -> tuple:
    mask = [True, True, True]
    found: tuple = aten.native_batch_norm_backward(
        grad, x, weight, running_mean, running_var, save_mean, save_rstd, True, eps, mask
    )
    return found


CUDNN: dict[Any, Callable] = {
    aten.cudnn_batch_norm.default: batch_norm,
    aten.cudnn_batch_norm_backward.default: batch_norm_backward,
}
"""The replacement of each operator."""
