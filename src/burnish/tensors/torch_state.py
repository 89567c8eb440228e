"""Snapshots torch's global state and restores it.

    before = TorchState.now()
    with torch.no_grad(): ...         a trace, a replay or a failed run may leave them changed
    before.restore()

Guards compare ``capture.guards.tensor_metadata.global_state``. Settings of kernels, such as TF32, are in
``runtime.eager.setting_change_nodes``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..foundation.torch_private import is_fwd_grad_enabled, set_fwd_grad_enabled
from .device_facts import DEVICES


class TorchState(NamedTuple):
    """A field that is None is not set by `restore`."""

    grad: bool
    autocast: tuple[tuple[bool, torch.dtype], ...]
    """For each of `DEVICES`, whether autocast is on, and its dtype."""
    autocast_cache: bool
    nesting: int | None = None
    """How many autocast contexts are open. Their cache of casts is kept until the last one exits."""
    forward_grad: bool | None = None
    default_dtype: torch.dtype | None = None
    inference: bool | None = None
    """Never restored: torch offers that to context managers only."""

    @classmethod
    def now(cls) -> TorchState:
        return cls(
            torch.is_grad_enabled(),
            tuple((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in DEVICES),
            torch.is_autocast_cache_enabled(),
            autocast_nesting(),
            is_fwd_grad_enabled(),
            torch.get_default_dtype(),
            torch.is_inference_mode_enabled(),
        )

    def restore(self) -> None:
        if self.nesting is not None:
            for _ in range(self.nesting, autocast_nesting()):
                if torch.autocast_decrement_nesting() == 0:
                    torch.clear_autocast_cache()
            for _ in range(autocast_nesting(), self.nesting):
                torch.autocast_increment_nesting()
        torch.set_grad_enabled(self.grad)
        if self.forward_grad is not None:
            set_fwd_grad_enabled(self.forward_grad)
        if self.default_dtype is not None:
            torch.set_default_dtype(self.default_dtype)
        for device, (is_on, dtype) in zip(DEVICES, self.autocast, strict=True):
            torch.set_autocast_enabled(device, is_on)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.autocast_cache)


def autocast_nesting() -> int:
    found = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return found
