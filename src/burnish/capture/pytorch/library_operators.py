"""Operators that were registered with torch from Python: what they run may read anything."""

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
"""Under which an operator is registered that runs with data. Torch's own are registered for tensors without."""

OF_TORCH = ("aten", "prims", "prim")


def runs_python(operator: Any) -> bool:
    name, _, overload = str(operator).replace(".", "/", 1).partition(".")
    return name.partition("/")[0] not in OF_TORCH and is_registered_here(name, overload, len(_registered()))


def _registered() -> set[str]:
    return getattr(torch.library, "_impls", set())


@functools.lru_cache(maxsize=4096)
def is_registered_here(name: str, overload: str, count: int) -> bool:
    """``count``: of all registrations, which are asked again when there are more."""
    spelled = {name, f"{name}.{overload}"} if overload not in ("", "default") else {name}
    return any(f"{one}/{key}" in _registered() for one in spelled for key in KEYS)
