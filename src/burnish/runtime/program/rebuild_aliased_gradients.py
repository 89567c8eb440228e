"""Gradients that alias each other or a tangent, made at run time as eager's autograd returns them.

    y = p.view(-1) + q        backward returns (tangent, tangent); `with_views` makes (tangent.as_strided(…), tangent)

`lower.trace.find_aliased_gradients` finds these gradients in the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...concurrency.outside_errors import Suppressing, is_asynchronous
from ...foundation.torch_private import will_engine_execute_node

if TYPE_CHECKING:
    from ...captured_graph.aliased_gradients import InputView, TangentGradient


def with_views(
    found: Sequence[Any], views: Sequence[tuple[int, InputView]], of_tangents: Sequence[TangentGradient]
) -> list[Any]:
    """Make some gradients views of others. A view keeps its base alive, so autograd copies the base and steals only the
    view. A view of a view would keep the base of both alive, so the bases made here are not views."""
    came_in = {view.at for view in of_tangents}
    shown = {id(found[at]): found[at] for at, _ in views if at not in came_in}
    alone = {key: whole(x) for key, x in shown.items() if x._is_view()}
    made = [alone.get(id(x), x) for x in found] if alone else list(found)
    for at, view in views:
        made[at] = view.of(made) if at == view.input else made[view.input]
    return made


def is_turned(tangent: torch.Tensor | None, shape: tuple, stride: tuple, dtype: torch.dtype) -> bool:
    """Whether backward gets a copy of a tangent because it expects another memory layout."""
    return tangent is not None and tangent.stride() != stride and tangent.shape == shape


def with_tangents(found: Sequence[Any], turned: Sequence[tuple[TangentGradient, torch.Tensor]]) -> list[Any]:
    """Where a tangent was copied into another memory layout: make the gradients views of the original tangent, if its
    strides allow that."""
    made = list(found)
    again: dict[tuple[int, tuple], torch.Tensor] = {}  # gradients that are one tensor share one view
    for view, tangent in turned:
        with Suppressing(RuntimeError):
            key = view.flow, view.steps
            again[key] = made[view.at] = again[key] if key in again else view.of(tangent)
    return made


def will_take_over(x: torch.Tensor) -> bool:
    """Whether this is a leaf that autograd accumulates a gradient in."""
    try:
        return x.is_leaf and will_engine_execute_node(torch.autograd.graph.get_gradient_edge(x).node)
    except RuntimeError as error:  # torch.autograd.grad, which returns the gradients
        if is_asynchronous(error):
            raise
        return False


def copied_if_held(found: Sequence[Any], held: Sequence[tuple[int, bool]], inputs: Sequence[Any]) -> list[Any]:
    """A leaf copies a gradient that eager references elsewhere. In compiled code nothing else does, so it is copied
    here."""
    made = list(found)
    for at, is_tangent in held:
        if (not is_tangent or made[at]._is_view()) and will_take_over(inputs[at]):
            made[at] = made[at].clone()
    return made


def whole(x: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor that is not a view."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(
        x.untyped_storage(), x.storage_offset(), x.shape, x.stride()
    )
