"""Two results of a model side by side: their tensors, whether they are equal, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch


def tensors_of(value: Any, path: str = "result") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in nested containers and in the attributes of objects such as a model's output, with its path."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from tensors_of(part, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from tensors_of(part, f"{path}[{i}]")
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for name, part in vars(value).items():
            yield from tensors_of(part, f"{path}.{name}")


def why_different(want: Any, got: Any) -> str | None:
    """The first difference between two results, bit for bit; None if they are equal."""
    if type(want) is not type(got):
        return f"a {type(want).__name__} expected, got a {type(got).__name__}"
    wanted, gotten = dict(tensors_of(want)), dict(tensors_of(got))
    if wanted.keys() != gotten.keys():
        return f"tensors {list(wanted)} expected, got {list(gotten)}"
    if not wanted:
        return None if want == got else f"{want!r} expected, got {got!r}"
    for path, a in wanted.items():
        b = gotten[path]
        for fact in ("dtype", "shape", "requires_grad"):
            if getattr(a, fact) != getattr(b, fact):
                return f"{path}: {fact} {getattr(a, fact)} expected, got {getattr(b, fact)}"
        if a.stride() != b.stride():
            return f"{path}: stride {a.stride()} expected, got {b.stride()}"
        if not torch.equal(a, b) and not ((a == b) | (a.isnan() & b.isnan())).all():
            return f"{path}: values differ by up to {distance(a, b):.3g}"
    return None


def max_difference(want: Any, got: Any) -> float:
    """The largest difference between the tensors of two results, infinite if their paths differ."""
    wanted, gotten = dict(tensors_of(want)), dict(tensors_of(got))
    if wanted.keys() != gotten.keys() or any(a.shape != gotten[path].shape for path, a in wanted.items()):
        return float("inf")
    return max((distance(a, gotten[path]) for path, a in wanted.items()), default=0.0)


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    if not a.numel():
        return 0.0
    apart = (a.detach().to(torch.float64) - b.detach().to(torch.float64)).abs()
    apart[(a == b) | (a.isnan() & b.isnan())] = 0.0
    return apart.nan_to_num(nan=float("inf")).max().item()
