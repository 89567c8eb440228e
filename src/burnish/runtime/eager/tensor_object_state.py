"""Steps of a graph that change a tensor object: hooks on it, whether its gradient is kept, what data it shows. And
those that make an object which is more than its data: gradients begin at it. Operators of somebody else's that write to
their arguments are steps as well.

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

from ...concurrency.compute_once import once
from ...tensors.collective_operators import is_collective_operator


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
    return (
        getattr(node.target, "stands_alone", False) is True
        or node.target is torch.nn.Parameter
        or node.kwargs.get("requires_grad") is True
        or isinstance(node.target, OPERATORS)
        and is_foreign_and_writes(node.target)
    )


OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


@once
def is_foreign_and_writes(operator: Any) -> bool:
    """Of operators that are not torch's own there are no forms that leave their arguments alone."""
    family = operator if isinstance(operator, torch._ops.OpOverloadPacket) else operator._overloadpacket
    if family._qualified_op_name.partition("::")[0] in ("aten", "prims") or is_collective_operator(family):
        return False
    overloads = [getattr(family, name) for name in family.overloads()] if operator is family else [operator]
    return any(overload._schema.is_mutable for overload in overloads)
