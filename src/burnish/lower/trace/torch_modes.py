"""Torch's modes around a trace: grad mode, inference mode, autocast, default dtype, dispatch keys."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch

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


def dispatcher_kept() -> Any:
    """Restores dispatch keys. An error inside torch's C++ code may leave some disabled, autograd's among them."""
    return torch._C._ForceDispatchKeyGuard(
        torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    )


def switches() -> tuple:
    """The modes that a call in a graph may change for later calls, and for code that runs after the graph."""
    nesting = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        nesting,
        *((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")),
    )


def put_back(state: tuple) -> None:
    torch.set_grad_enabled(state[0])
    torch.set_default_dtype(state[2])
    while (nesting := switches()[3]) != state[3]:
        if nesting < state[3]:
            torch.autocast_increment_nesting()
        elif torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
    for device, (is_on, dtype) in zip(("cpu", "cuda"), state[4:], strict=True):
        torch.set_autocast_enabled(device, is_on)
        torch.set_autocast_dtype(device, dtype)
