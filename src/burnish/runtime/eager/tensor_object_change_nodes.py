"""Graph nodes with side effects on tensor objects: hooks, `retain_grad`, `.data`, new leaves.

    slot, handle = register_hook(y)        y's gradient passes through slot(gradient)
    fill(slot, function)                   after the graph has run: the hook, made from this run's values
    retain_grad(y)
    set_data_(p, value)                    p.data = value
    x.requires_grad_(True)                 of a tensor that the caller holds or gets
    p = torch.nn.Parameter(y)              a leaf of its own class
    z = torch.zeros(3, requires_grad=True)

These nodes run as they are, each at its place, and the parts of the graph between them are compiled
(``compiler.uncompiled_calls.stands_alone``).
"""

from __future__ import annotations

from typing import Any

import torch


class HookSlot:
    """A hook whose function is set later, before backward runs."""

    def __init__(self) -> None:
        self.function: Any = None

    def __call__(self, gradient: torch.Tensor) -> Any:
        return self.function(gradient)


def register_hook(tensor: torch.Tensor) -> tuple[HookSlot, Any]:
    slot = HookSlot()
    return slot, tensor.register_hook(slot)


def fill(slot: HookSlot, function: Any) -> None:
    slot.function = function


def retain_grad(tensor: torch.Tensor) -> None:
    tensor.retain_grad()


def set_data_(tensor: torch.Tensor, value: torch.Tensor) -> None:
    tensor.data = value


for _step in (register_hook, retain_grad, set_data_):
    _step.stands_alone = True  # type: ignore[attr-defined]
WATCHING = (register_hook, retain_grad)
"""They see a tensor's whole gradient, including that of earlier uses: a compiled part must not contain both the
tensor's definition and one of its uses."""
