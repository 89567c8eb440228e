"""How far results are from float64, in eager's own error.

    truth = in_double(run)                         # name of a tensor -> tensor
    relative_error(truth, results)                 # 3e-07

Compiled arithmetic may round otherwise than eager's, so "equal to eager" is the wrong question. The right one is
whether it is as near to the truth as eager is: a ratio of 1 says so, up to 2 is what two ways of rounding differ by.

Gradients of a net with ReLUs or maxima jump where an activation changes sign, and among a million activations some are
so near to zero that rounding decides. Eager's gradients of resnet18 are 2e-5 off for one image and 0.1 for the next. So
where gradients jump, one input says nothing: the error is then the root mean square over `DRAWS` of them, and over all
entries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

Tensors = Mapping[str, torch.Tensor]


SMALL = 0.01

DRAWS = 9

NUDGE = 1e-5
"""By this share inputs are changed to see whether results jump: more than a hundred times as far."""


def relative_error(truth: Tensors, got: Tensors) -> float:
    """The largest difference of any entry, as a share of the largest entry that its tensor should have: gradients of
    a hundred weights, each of its own magnitude, count alike. Infinite where a tensor is missing or has another shape.

    Some gradients are zero by algebra, that of a bias before a normalisation for one, and rounding is all there is in
    them. So no tensor is measured against less than a hundredth of the largest entry of its kind: those whose names
    begin with the same word.
    """
    if truth.keys() != got.keys():
        return math.inf
    largest = {name: largest_entry(part) for name, part in truth.items()}
    of_kind: dict[str, float] = {}
    for name, entry in largest.items():
        kind = name.split(" ")[0]
        of_kind[kind] = max(of_kind.get(kind, 0.0), entry)
    return max(
        (
            difference(part, got[name]) / (max(largest[name], SMALL * of_kind[name.split(" ")[0]]) or 1.0)
            for name, part in truth.items()
        ),
        default=0.0,
    )


def typical_error(truth: Tensors, got: Tensors) -> float:
    """The root mean square of the difference as a share of the tensor's own, over all tensors alike."""
    if truth.keys() != got.keys():
        return math.inf
    norms = {name: precise(part).norm().item() for name, part in truth.items() if part.numel()}
    largest = max(norms.values(), default=0.0)
    shares = [
        (precise(got[name]) - precise(truth[name])).norm().item() / (max(norm, SMALL * largest) or 1.0)
        for name, norm in norms.items()
    ]
    return math.sqrt(sum(share * share for share in shares) / max(len(shares), 1))


def difference(truth: torch.Tensor, got: torch.Tensor) -> float:
    if truth.shape != got.shape:
        return math.inf
    if not truth.numel():
        return 0.0
    truth, got = precise(truth), precise(got)
    apart = (truth - got).abs()
    # Equal infinities and NaN in the same place are right; a difference of them would be NaN.
    apart[(truth == got) | (truth.isnan() & got.isnan())] = 0.0
    return apart.nan_to_num(nan=math.inf, posinf=math.inf).max().item()


def largest_entry(part: torch.Tensor) -> float:
    return precise(part).abs().nan_to_num(nan=0.0, posinf=0.0).max().item() if part.numel() else 0.0


def precise(part: torch.Tensor) -> torch.Tensor:
    return part.detach().to(torch.complex128 if part.is_complex() else torch.float64)


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
