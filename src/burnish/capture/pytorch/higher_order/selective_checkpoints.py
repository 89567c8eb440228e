"""Selective activation checkpoints: a policy says which operators' results are saved, and not computed again.

    context_fn = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    checkpoint(f, x, use_reentrant=False, context_fn=context_fn)

        sin = torch.sin(x)          region 0
        mm = torch.mm(sin, w)       saved
        cos = torch.cos(mm)         region 1

The policy is asked once, while the function is traced, for each operator that a call performs. A call with a saved
operator is in no region, so the checkpoint becomes several regions. A policy decides what is saved, never what is
computed. So what it reads needs no guard, but one that writes to outside objects is left to torch.
"""

from __future__ import annotations

import functools
from types import FunctionType, MethodType
from typing import Any

from torch.utils import checkpoint as torch_checkpoint

from ....foundation.torch_private import CachedTorchDispatchMode, CachingTorchDispatchMode, TorchDispatchMode
from ...engine.break_signals import BreakAfterOperation, Stop
from ...interpreter.frames import Raised
from ..custom_functions.autograd_function_side_effects import written_by
from .native_callbacks import run_nested

IGNORED = frozenset(getattr(torch_checkpoint, "SAC_IGNORED_OPS", ()))
SAVES = frozenset(
    getattr(torch_checkpoint.CheckpointPolicy, name)
    for name in ("MUST_SAVE", "PREFER_SAVE")
    if hasattr(torch_checkpoint, "CheckpointPolicy")
)


def policy_of(m: Any, context_fn: Any) -> Any:
    """The policy of a selective checkpoint; None if ``context_fn`` makes other contexts."""
    if CachingTorchDispatchMode is None or not callable(context_fn):
        return None
    start = m.frame, list(m.frame.stack), m.recorder.mark()
    try:
        made = run_nested(m, context_fn, (), {})
    except (Stop, BreakAfterOperation, Raised):
        m.frame, m.frame.stack[:] = start[0], start[1]
        m.recorder.undo_to(start[2])
        return None
    if type(made) is not tuple or tuple(map(type, made)) != (CachingTorchDispatchMode, CachedTorchDispatchMode):
        return None
    policy = made[0].policy_fn
    if type(policy) not in (FunctionType, MethodType, functools.partial):
        return None  # what it writes to is not known
    return None if written_by(policy, set()) is not None else policy


class Policy(TorchDispatchMode):
    """Asks a policy about each operator. ``saved``: the recorded calls that perform one whose result is saved."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Any, policy: Any):
        super().__init__()
        self.recorder, self.policy = recorder, policy
        self.saved: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        if func not in IGNORED and self.decides_to_save(func, made, args, kwargs):
            self.saved.add(len(self.recorder.calls))
        return made

    def decides_to_save(self, func: Any, made: Any, args: tuple, kwargs: dict) -> bool:
        context = torch_checkpoint.SelectiveCheckpointContext
        try:
            given = context(is_recompute=False, op_output=made)
        except TypeError:  # of older torch
            given = context(is_recompute=False)
        answer = self.policy(given, func, *args, **kwargs)
        return answer if isinstance(answer, bool) else answer in SAVES


def split(start: int, end: int, saved: set[int]) -> list[tuple[int, int]]:
    """The runs of calls between the saved ones."""
    bounds = [start - 1, *sorted(at for at in saved if start <= at < end), end]
    return [(a + 1, b) for a, b in zip(bounds, bounds[1:], strict=False) if b - a > 1]
