"""How far results are from float64, in eager's own error.

    truth = in_double(run)                         # name of a tensor -> tensor
    relative_error(truth, results)                 # 3e-07

Compiled arithmetic may round otherwise than eager's, so "equal to eager" is the wrong question. The right one is
whether it is as near to the truth as eager is: a ratio of 1 says so, up to 2 is what two ways of rounding differ by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

Tensors = Mapping[str, torch.Tensor]


def relative_error(truth: Tensors, got: Tensors) -> float:
    """The largest difference of any entry, as a share of the largest entry that its tensor should have: gradients of
    a hundred weights, each of its own magnitude, count alike. Infinite where a tensor is missing or has another shape.
    """
    if truth.keys() != got.keys():
        return math.inf
    return max((tensor_error(expected, got[name]) for name, expected in truth.items()), default=0.0)


def tensor_error(truth: torch.Tensor, got: torch.Tensor) -> float:
    if truth.shape != got.shape:
        return math.inf
    if not truth.numel():
        return 0.0
    truth, got = (part.detach().to(torch.complex128 if part.is_complex() else torch.float64) for part in (truth, got))
    apart = (truth - got).abs()
    # Equal infinities and NaN in the same place are right; a difference of them would be NaN.
    apart[(truth == got) | (truth.isnan() & got.isnan())] = 0.0
    largest = truth.abs().nan_to_num(nan=0.0, posinf=0.0).max().item()
    return (apart.nan_to_num(nan=math.inf).max() / (largest or 1.0)).item()


def error_ratio(error: float, eager: float, dtype: torch.dtype = torch.float32) -> float:
    """An error over eager's. Less than one rounding of the data type is luck: it counts as one, on both sides."""
    least = torch.finfo(dtype).eps / 2
    return max(error, least) / max(eager, least)


def doubled(value: Any) -> Any:
    """Arguments with every floating tensor in float64."""
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point():
            return value
        return value.detach().double().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: doubled(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(doubled, value))
    return value


def differ(a: Tensors, b: Tensors) -> bool:
    """Whether two results are not the same: what drew random numbers cannot be compared with float64."""
    return a.keys() != b.keys() or any(not torch.equal(part, b[name]) for name, part in a.items())
