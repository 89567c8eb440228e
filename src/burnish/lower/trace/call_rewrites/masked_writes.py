"""Masked writes of values that require a gradient become `where`, an element-wise choice.

    h[mask] = row    =>    where = where mask, row, h
                           copy_ h, where

Autograd would select the gradient of the row by the mask, and the number of selected rows depends on data. A value that
is broadcast over all positions of the mask has a simpler gradient: the sum over all positions, with zero where the mask
is False.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

TARGETS = ("__setitem__", torch.Tensor.__setitem__, operator.setitem)


def is_masked_write(target: Any, args: tuple) -> bool:
    if not any(target == one for one in TARGETS) or not all(isinstance(arg, torch.Tensor) for arg in args):
        return False
    x, mask, value = args
    if mask.dtype is not torch.bool or not mask.dim() or mask.shape != x.shape[: mask.dim()]:
        return False
    rest = x.dim() - mask.dim()
    is_alike = value.dim() <= rest or value.dim() == rest + 1 and value.shape[0] == 1
    return (
        is_alike
        and value.dtype is x.dtype
        and value.device == x.device == mask.device
        and value.requires_grad
        and torch.is_grad_enabled()
    )


def write_masked(x: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> None:
    places = mask.view(*mask.shape, *(1,) * (x.dim() - mask.dim()))
    x.copy_(torch.where(places, value, x))
