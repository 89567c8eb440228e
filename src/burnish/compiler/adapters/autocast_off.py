"""Switches autocast off while a compiled graph runs: its casts are part of the graph."""

from __future__ import annotations

from typing import Any

import torch

from ...captured_graph.compile_request import CompiledFn
from ...tensors.device_facts import DEVICES


def autocast_is_on() -> bool:
    return any(map(torch.is_autocast_enabled, DEVICES))


def without_autocast(compiled: CompiledFn) -> CompiledFn:
    """The casts of autocast are part of the compiled graph, so autocast must be off while it runs."""

    def call(*inputs: Any) -> Any:
        # The switches are set directly: torch's context manager takes ten microseconds.
        before = [(device, torch.is_autocast_enabled(device)) for device in DEVICES]
        for device in DEVICES:
            torch.set_autocast_enabled(device, False)
        try:
            return compiled(*inputs)
        finally:
            for device, is_on in before:
                torch.set_autocast_enabled(device, is_on)

    return call
