"""The tangents that a caller may hand to a compiled backward, which reads their memory.

keys = keys_of(tangents)
if keys & NOT_IN_MEMORY:                                   sparse, for example: eager computes the gradients
    ...
as_expected(tangent, shape, stride, dtype, device, keys & LAZY)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import or_
from typing import Any

import torch

from ...foundation.torch_private import MISSING, DispatchKey, dispatch_keys
from ...foundation.torch_private import DispatchKeySet as Keys
from .program import is_laid_out, restrided


def bits(*names: str) -> int:
    """Of dispatch keys. None where torch lacks a name of `torch_private`, and nothing is compiled."""
    return 0 if MISSING else functools.reduce(or_, (Keys(getattr(DispatchKey, name)).raw_repr() for name in names))


LAZY = bits("Conjugate", "Negative")
"""The dispatch keys of tensors whose memory holds other values than theirs."""
NOT_IN_MEMORY = ~(
    (0 if MISSING else dispatch_keys(torch.empty(0, device="cpu")).raw_repr()) | bits("CUDA", "AutocastCUDA") | LAZY
)
"""Those of tensors that kernels cannot read: sparse and nested ones, those of a class with a ``__torch_dispatch__``,
those that have no memory, or that stand for many (``is_grads_batched=True``, ``vmap``)."""


def keys_of(tensors: Sequence[Any]) -> int:
    """The dispatch keys that any of the tensors has. In one number: this runs in every backward."""
    keys = 0
    for x in tensors:
        if x is not None:
            keys |= dispatch_keys(x).raw_repr()
    return keys


def as_expected(
    x: torch.Tensor | None, shape: tuple, stride: tuple, dtype: torch.dtype, device: torch.device, is_lazy: int
) -> torch.Tensor:
    """A tangent in the memory layout that backward was compiled for."""
    if x is None:
        return (
            torch.zeros(shape, dtype=dtype, device=device).as_strided(shape, stride)
            if not shape
            else torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
        )
    if is_lazy:  # kernels read memory, which holds the unresolved values
        x = x.resolve_conj().resolve_neg()
    # A tangent in the expected layout stays the same tensor, whatever its strides along dimensions of size 1. As a
    # gradient, a second tensor over the same memory would be stolen by autograd, not copied.
    return x if x.stride() == stride or is_laid_out(x, shape, stride) else restrided(x, shape, stride)
