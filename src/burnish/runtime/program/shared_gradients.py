"""Gradients that share memory with each other or with a tangent, as eager's autograd returns them.

    y = p.view(-1) + q        backward returns (tangent, tangent); `with_views` makes (tangent.as_strided(…), tangent)

Which gradients these are, `lower.trace.shared_gradients` finds in the trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Shown:
    """An output that is an input, or a view of one."""

    input: int
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    offset: int = 0
    """Of elements, from where the input begins."""
    is_detached: bool = False

    def of(self, inputs: Sequence[Any]) -> torch.Tensor:
        x = inputs[self.input]
        if self.shape is None:
            return x
        made = x.as_strided(self.shape, self.stride, x.storage_offset() + self.offset)
        return made.detach() if self.is_detached else made


@dataclass(frozen=True, slots=True)
class PassedOn:
    """A gradient that is a tangent, or a view of one."""

    at: int
    """Its position among backward's results."""
    flow: int
    """The position of the tangent among `flows`."""
    steps: tuple[tuple[str, tuple, int], ...]
    """Of each view on the way: torch's operator, its further arguments, and which of its results."""

    def of(self, tangent: torch.Tensor) -> torch.Tensor:
        for name, args, position in self.steps:
            packet, _, overload = name.removeprefix("aten.").partition(".")
            made = getattr(getattr(torch.ops.aten, packet), overload)(tangent, *args)
            tangent = made if isinstance(made, torch.Tensor) else made[position]
        return tangent


def with_views(found: Sequence[Any], views: Sequence[tuple[int, Shown]], of_tangents: Sequence[PassedOn]) -> list[Any]:
    """Gradients of which some are views of others. A view holds the tensor that it shows, so autograd copies that one
    and takes over the view alone. A view of a view would hold the base of both: what was made here is none."""
    came_in = {view.at for view in of_tangents}
    shown = {id(found[at]): found[at] for at, _ in views if at not in came_in}
    alone = {key: whole(x) for key, x in shown.items() if x._is_view()}
    made = [alone.get(id(x), x) for x in found] if alone else list(found)
    for at, view in views:
        made[at] = view.of(made) if at == view.input else made[view.input]
    return made


def is_turned(tangent: torch.Tensor | None, shape: tuple, stride: tuple, dtype: torch.dtype) -> bool:
    """Whether backward is given a copy of a tangent because it expects another memory layout."""
    return tangent is not None and tangent.stride() != stride and tangent.shape == shape


def with_tangents(found: Sequence[Any], turned: Sequence[tuple[PassedOn, torch.Tensor]]) -> list[Any]:
    """A tangent laid out otherwise than backward expects was copied for it. Gradients are views of the one that came
    in, where its strides allow that."""
    made = list(found)
    again: dict[tuple[int, tuple], torch.Tensor] = {}  # one view for gradients that are one tensor
    for view, tangent in turned:
        with contextlib.suppress(RuntimeError):
            key = view.flow, view.steps
            again[key] = made[view.at] = again[key] if key in again else view.of(tangent)
    return made


def will_take_over(x: torch.Tensor) -> bool:
    """Whether this is a leaf that autograd accumulates a gradient in."""
    try:
        return x.is_leaf and torch._C._will_engine_execute_node(torch.autograd.graph.get_gradient_edge(x).node)
    except RuntimeError:  # this is torch.autograd.grad, which returns the gradients
        return False


def copied_if_held(found: Sequence[Any], held: Sequence[tuple[int, bool]], inputs: Sequence[Any]) -> list[Any]:
    """A leaf copies a gradient that something else holds in eager. Here nothing else does: it gets a copy."""
    made = list(found)
    for at, is_tangent in held:
        if (not is_tangent or made[at]._is_view()) and will_take_over(inputs[at]):
            made[at] = made[at].clone()
    return made


def whole(x: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor that is no view."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(
        x.untyped_storage(), x.storage_offset(), x.shape, x.stride()
    )
