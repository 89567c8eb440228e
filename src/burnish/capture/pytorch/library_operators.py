"""Library operators registered with torch from Python: their implementation may read anything."""

from __future__ import annotations

import functools
from typing import Any

import torch

KEYS = (
    "CPU",
    "CUDA",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
    "Autograd",
    "AutogradCPU",
    "AutogradCUDA",
)
"""Dispatch keys of operators that run with data. Torch's own registrations are for tensors without data."""

OF_TORCH = ("aten", "prims", "prim")


def runs_python(operator: Any) -> bool:
    name, _, overload = str(operator).replace(".", "/", 1).partition(".")
    return name.partition("/")[0] not in OF_TORCH and is_registered_here(name, overload, len(_registered()))


def _registered() -> set[str]:
    return getattr(torch.library, "_impls", set())


@functools.lru_cache(maxsize=4096)
def is_registered_here(name: str, overload: str, count: int) -> bool:
    """``count``: the number of all registrations, so that a new one invalidates the cached result."""
    spelled = {name, f"{name}.{overload}"} if overload not in ("", "default") else {name}
    return any(f"{one}/{key}" in _registered() for one in spelled for key in KEYS)
