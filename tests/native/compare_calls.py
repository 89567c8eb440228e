"""Compares calls of compiled code with eager: results, written inputs, shared memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from bench.operators import Judge, Watched, observe_call, same

import burnish
from burnish.settings import patch

ALL = ("native", "library", "views")


def equal_calls(fn: Callable, *inputs: Any, calls: int = 3, ways: Sequence[str] = ALL) -> None:
    """Each call gets copies of the inputs that overlap as the inputs do. `ways` are those it may run in."""
    burnish.reset()
    with torch.no_grad(), patch(never_slower=False, on_error="raise", eager_random=True), Watched() as watched:
        compiled = burnish.compile(fn, backend="burnish")
        for _ in range(calls):
            given = copy.deepcopy(inputs), {}
            want, got = observe_call(fn, given), observe_call(compiled, given)
            same(want, got, True, Judge(fn, given))
            if want.error is None:
                assert got.error is None, got.error
    assert watched.way in ways, f"it ran {watched.way}: {watched.refusals}"


def compiled_with(fn: Callable, *inputs: Any) -> Callable:
    """Compiled, and past the first call, which runs eagerly."""
    with torch.no_grad(), patch(never_slower=False, on_error="raise", eager_random=True):
        compiled = burnish.compile(fn, backend="burnish")
        compiled(*copy.deepcopy(inputs))
    return compiled
