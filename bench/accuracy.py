"""How far results are from float64, in eager's own error.

    truth = in_double(run)                         # name of a tensor -> tensor
    relative_error(truth, results)                 # 3e-07

Compiled arithmetic may round differently from eager, so "equal to eager" is the wrong question. The right one is
whether it is as close to the true result as eager is. A ratio of 1 says so; two ways of rounding differ by up to 2.

Gradients of a network with ReLUs or maxima jump where an activation changes sign, and among a million activations some
are so close to zero that rounding decides. Eager's gradients of resnet18 are off by 2e-5 for one image and by 0.1 for
the next. Where gradients jump, a single input is therefore meaningless: the error is then the root mean square over
`DRAWS` inputs and over all entries.
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
"""The relative change of the inputs that tests whether results jump: by more than a hundred times as much."""


def relative_error(truth: Tensors, got: Tensors) -> float:
    """The largest difference of any entry, relative to the largest entry that its tensor should have: gradients of
    a hundred weights of different magnitudes count alike. Infinite if a tensor is missing or has another shape.

    Some gradients are zero by algebra, such as that of a bias before a normalisation, and contain only rounding. So no
    tensor is measured against less than a hundredth of the largest entry of its kind, which is the tensors whose names
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
    """The root mean square of the difference relative to that of the tensor itself; all tensors count alike."""
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
    # Equal infinities and NaNs in the same place are right; their difference would be NaN.
    apart[(truth == got) | (truth.isnan() & got.isnan())] = 0.0
    return apart.nan_to_num(nan=math.inf, posinf=math.inf).max().item()


def largest_entry(part: torch.Tensor) -> float:
    return precise(part).abs().nan_to_num(nan=0.0, posinf=0.0).max().item() if part.numel() else 0.0


def precise(part: torch.Tensor) -> torch.Tensor:
    return part.detach().to(torch.complex128 if part.is_complex() else torch.float64)


def error_ratio(error: float, eager: float, dtype: torch.dtype = torch.float32) -> float:
    """An error over eager's. On both sides, an error below one rounding of the dtype is luck and counts as one."""
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
    """Whether two results differ: results that depend on random numbers cannot be compared with float64."""
    return a.keys() != b.keys() or any(not torch.equal(part, b[name]) for name, part in a.items())
