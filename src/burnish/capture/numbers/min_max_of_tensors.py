"""`min` and `max` of one-element tensors, recorded instead of breaking under `fullgraph=True`.

    top = max(a.sum(), b.sum())             gt = sum_2 > sum_1;  where = torch.where(gt, sum_2, sum_1)

Python compares, and returns one of the objects. The graph's result is another tensor with the same value. So this is
only done where the difference cannot be seen: no gradients flow, and nothing is written to afterwards. Where the result
leaves the graph, the object is picked after the graph has run: ``picked(G[0], (G[1], V[0]))``, by its position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ...foundation.torch_private import has_storage
from ..interpreter.frames import MISSING
from ..pytorch import writes_of_calls


class ChosenOperand(NamedTuple):
    result: torch.Tensor
    at: torch.Tensor
    """Which of the operands it is."""
    operands: tuple[torch.Tensor, ...]
    position: int
    """The number of calls recorded before it."""


def choose(m: Any, builtin: Callable, args: tuple, kwargs: dict) -> Any:
    """``min(*args)`` or ``max(*args)`` of tensors; MISSING if it is not recorded."""
    if kwargs or not m.options.fullgraph or not m.options.keeps_data or m.region is not None:
        return MISSING
    operands = args if len(args) > 1 else tuple(args[0]) if type(args[0]) in (list, tuple) else ()
    if len(operands) < 2 or not all(type(x) is torch.Tensor for x in operands):
        return MISSING
    first = operands[0]
    facts = first.dtype, first.shape, first.device
    if first.dtype.is_complex or first.numel() != 1 or any((x.dtype, x.shape, x.device) != facts for x in operands):
        return MISSING
    if any(x.requires_grad or not m.knows(x) or m.unbacked_sizes.has_unknown_size(x) for x in operands):
        return MISSING
    if len(args) == 1:
        m.heap.expose(args[0])
    best, at = first, m.perform(torch.zeros_like, first, dtype=torch.int64)
    for i, x in enumerate(operands[1:], 1):
        is_better = m.perform(torch.lt if builtin is min else torch.gt, x, best)
        best, at = m.perform(torch.where, is_better, x, best), m.perform(torch.where, is_better, i, at)
    m.chosen.append(ChosenOperand(best, at, operands, len(m.recorder.calls)))
    return best


def build(rebuilder: Any, value: torch.Tensor) -> str | None:
    """The object that Python chose, in the code that ends a segment; None for other tensors."""
    for chosen in rebuilder.tracer.chosen:
        if chosen.result is value:
            operands = ", ".join(map(rebuilder.build, chosen.operands))
            at = rebuilder.build(chosen.at)
            made: str = rebuilder.name(value, f"{rebuilder.constant(choose_operand)}({at}, ({operands}))")
            return made
    return None


def choose_operand(at: torch.Tensor, operands: tuple) -> Any:
    return operands[int(at)]


def is_chosen(m: Any, value: Any) -> bool:
    return any(value is x for chosen in m.chosen for x in (chosen.result, *chosen.operands))


def why_not_hidden(m: Any, built: list[Any]) -> str | None:
    """Why it can be seen that a result is another tensor. ``built``: what leaves the graph."""
    results = {storage_of(chosen.result): chosen.result for chosen in m.chosen}
    for chosen in m.chosen:
        if writes_of_calls.may_change_after(m.recorder.calls, chosen.position):
            return "min() or max() of tensors that may be written to afterwards"
    if any(type(x) is torch.Tensor and results.get(storage_of(x), x) is not x for x in built):
        return "a view of the result of min() or max() of tensors"
    return None


def storage_of(x: torch.Tensor) -> Any:
    return x.untyped_storage()._cdata if has_storage(x) else id(x)
