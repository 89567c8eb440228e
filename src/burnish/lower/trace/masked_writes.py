"""What learns and is written where a mask says: a choice for each element.

    h[mask] = row    =>    where = where mask, row, h
                           copy_ h, where

Autograd would pick the gradient of the row by the mask, and only data tells how many rows that are. Of what goes to
every place of the mask alike, the gradient is a sum over all places, with nothing for those the mask leaves out.
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
