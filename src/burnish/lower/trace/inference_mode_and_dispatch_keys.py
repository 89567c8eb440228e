"""Inference mode and dispatch keys around a trace. Only one trace runs at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch

from ...foundation.torch_private import (
    ForceDispatchKeyGuard,
    dispatch_tls_local_exclude_set,
    dispatch_tls_local_include_set,
)

tracing = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=tracing._at_fork_reinit)  # another thread may have held it
"""One trace at a time: it changes the behaviour of torch in the whole process."""


@contextlib.contextmanager
def plain_tensors() -> Iterator[None]:
    """Inference mode changes which operators reach the dispatcher; a trace runs without it."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


def inference_mode_of_result(func: Any, args: tuple) -> Any:
    """In inference mode, which the graph may enter itself, a view of a tensor from outside is an ordinary tensor."""
    if not (torch.is_inference_mode_enabled() and func._schema.returns[0].alias_info and args):
        return contextlib.nullcontext()
    base = args[0]
    return torch.inference_mode(not isinstance(base, torch.Tensor) or base.is_inference())


def dispatcher_kept() -> Any:
    """Restores dispatch keys. An error inside torch's C++ code may leave some disabled, autograd's among them."""
    return ForceDispatchKeyGuard(dispatch_tls_local_include_set(), dispatch_tls_local_exclude_set())
