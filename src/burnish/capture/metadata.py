"""Metadata: what a trace may know of tensors and of torch's switches without reading data, and whether it still holds.

``tensor_facts`` and ``global_state`` answer all of it as tuples: a guard keeps the answer and compares. That costs one
call into torch for each fact. ``SameTensors`` and ``SameState`` ask the same question of many tensors, or of all
switches, in a few calls:

    same = SameTensors([facts of x, facts of y])
    same((x, y))                                  # the first time fact by fact, from then on in one go

Torch has compiled comparisons for both (they serve its own compiler, and come with ``torch._C``). What they pass is
passed, together with the facts they leave out. What they do not pass is compared fact by fact, so they may be too
strict, or missing, and only time is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin

TENSOR_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))
FACT_NAMES = ("type", "dtype", "shape", "strides", "device", "requires_grad", "is_leaf", "lazy conjugation",
              "inference mode", "being a view")
REQUIRES_GRAD, IS_LEAF, IS_VIEW = (FACT_NAMES.index(name) for name in ("requires_grad", "is_leaf", "being a view"))
COMPARERS = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
TRIES = 8  # how often a comparison in one go is made anew before the facts are compared for good


def tensor_facts(t: Any) -> tuple:
    """All that a trace may read of a tensor without reading its data."""
    if type(t) not in TENSOR_TYPES:
        if not isinstance(t, torch.Tensor):
            return ()
        if isinstance(t, UninitializedTensorMixin):
            return (type(t), t.dtype, None, None, t.device, t.requires_grad, True, False, False, False)
    strided = t.layout is torch.strided
    return (type(t), t.dtype, t.shape, t.stride() if strided else t.layout, t.device, t.requires_grad,
            t.is_leaf, t.is_conj() or t.is_neg(), t.is_inference(), t._is_view())


_is_view = torch.Tensor._is_view
_is_leaf = torch.Tensor.is_leaf.__get__  # type: ignore[attr-defined]


class SameTensors:
    """Whether tensors have the facts that are expected of them."""

    __slots__ = ("_compare", "_expected", "_leaves", "_tries", "_views")

    def __init__(self, expected: Sequence[tuple]):
        self._expected = list(expected)
        self._views = [facts[IS_VIEW] for facts in expected]
        # A tensor that requires no gradient is a leaf.
        self._leaves = [facts[IS_LEAF] for facts in expected] if any(f[REQUIRES_GRAD] for f in expected) else None
        self._compare: Any = None
        self._tries = TRIES if COMPARERS is not None and all(map(is_comparable, expected)) else 0

    def __call__(self, tensors: tuple) -> bool:
        compare = self._compare
        if compare is not None and compare(*tensors):
            # It looks at type, dtype, device, shape, strides and dispatch keys, which tell conjugation and inference.
            return list(map(_is_view, tensors)) == self._views \
                and (self._leaves is None or list(map(_is_leaf, tensors)) == self._leaves)
        if list(map(tensor_facts, tensors)) != self._expected:
            return False
        if self._tries:
            self._tries -= 1
            self._compare = COMPARERS.TensorGuards(*tensors, dynamic_dims_sizes=None,
                                                   dynamic_dims_strides=None).check
        return True


def is_comparable(facts: tuple) -> bool:
    """Whether torch's comparison serves a tensor: it wants strides, and no class that may say what it likes."""
    return bool(facts) and facts[0] in TENSOR_TYPES and type(facts[3]) is tuple


def default_device() -> Any:
    """What ``torch.set_default_device`` was given, without importing the module that keeps it."""
    keeper = sys.modules.get("torch.utils._device")
    return None if keeper is None else keeper.CURRENT_DEVICE


def global_state() -> tuple:
    """The switches of torch that change what the recorded calls do."""
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
        torch._C._len_torch_function_stack(), torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"),
        torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"), torch.is_autocast_cache_enabled(),
        torch._C._is_torch_function_enabled(), default_device(),
    )


STATE_NAMES = ("grad mode", "inference mode", "default dtype", "number of torch function modes", "deterministic mode",
               "CPU autocast", "CPU autocast dtype", "CUDA autocast", "CUDA autocast dtype", "autocast cache",
               "torch function dispatch", "default device")


class SameState:
    """Whether torch's switches stand as expected."""

    __slots__ = ("_compare", "_expected", "_others", "_tries")

    def __init__(self, expected: tuple):
        self._expected = expected
        self._others = others_of(expected)
        self._compare: Any = None
        self._tries = TRIES if COMPARERS is not None else 0

    def __call__(self) -> bool:
        compare = self._compare
        if compare is not None and compare():
            # It looks at grad mode, autocast, default dtype, deterministic mode and torch function dispatch.
            keeper = sys.modules.get("torch.utils._device")
            return (torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack(),
                    torch._C._is_torch_function_enabled(),
                    None if keeper is None else keeper.CURRENT_DEVICE) == self._others
        if global_state() != self._expected:
            return False
        if self._tries:
            self._tries -= 1
            self._compare = COMPARERS.GlobalStateGuard().check
        return True


def others_of(state: tuple) -> tuple:
    """What torch's comparison of its switches leaves out."""
    values = dict(zip(STATE_NAMES, state, strict=True))
    return tuple(values[name] for name in ("inference mode", "number of torch function modes",
                                           "torch function dispatch", "default device"))
