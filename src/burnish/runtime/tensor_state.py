"""Steps of a graph that change a tensor object: hooks on it, whether its gradient is kept, what data it shows. And
those that make an object which is more than its data: gradients begin at it.

    slot, handle = register_hook(y)        y's gradient passes through slot(gradient)
    fill(slot, function)                   once the graph has run: what the hook is, made of this run's values
    retain_grad(y)
    set_data_(p, value)                    p.data = value
    p = torch.nn.Parameter(y)              a leaf of its own class
    z = torch.zeros(3, requires_grad=True)

They are run as they are, each at its place, and compilers compile what is between them (``stands_alone``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node


class Slot:
    """A hook whose function comes later, but before anybody goes backward."""

    def __init__(self) -> None:
        self.function: Any = None

    def __call__(self, gradient: torch.Tensor) -> Any:
        return self.function(gradient)


def register_hook(tensor: torch.Tensor) -> tuple[Slot, Any]:
    slot = Slot()
    return slot, tensor.register_hook(slot)


def fill(slot: Slot, function: Any) -> None:
    slot.function = function


def retain_grad(tensor: torch.Tensor) -> None:
    tensor.retain_grad()


def set_data_(tensor: torch.Tensor, value: torch.Tensor) -> None:
    tensor.data = value


for _step in (register_hook, retain_grad, set_data_):
    _step.stands_alone = True  # type: ignore[attr-defined]
WATCHING = (register_hook, retain_grad)
"""They see all of a tensor's gradient, that of earlier uses too: no piece that is compiled may hold one of its uses
together with what makes it."""


def stands_alone(node: Node) -> bool:
    """Whether a node is run as it is, between what is compiled. What makes a leaf is: whoever differentiates a
    graph asks which of its inputs need gradients."""
    return getattr(node.target, "stands_alone", False) is True or node.target is torch.nn.Parameter \
        or node.kwargs.get("requires_grad") is True
