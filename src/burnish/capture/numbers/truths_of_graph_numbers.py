"""Truths of graph numbers: comparisons, and bools read from tensors, that Python passes on without looking at them.

    n = x.sum().item()                        item = sum_1.item();  full = torch.full((), item)
    torch.cond(n > 0, f, g, (x,))             gt = full > 0;  cond = cond(gt, x)
    torch.cond(mask.any().item(), f, g, (x,))

Only with ``fullgraph=True``: elsewhere the graph ends there, and Python's own branch runs next. In the trace, such a
truth is a live scalar that also holds a tensor with its value. What needs the value itself is a break, as for numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..guards.tensor_metadata import TENSOR_TYPES
from . import assert_graph_numbers, graph_numbers, live_scalars


class GraphTruth(live_scalars.Expression):
    """The expression of a truth: it is computed from the numbers of the graph, after the graph has run."""

    __slots__ = ()
    in_graph = True

    @property
    def handle(self) -> Any:
        raise graph_numbers.NotBeforehand


class LiveBool(int, live_scalars.Live):
    """Python has no classes derived from `bool`."""

    tensor: torch.Tensor

    def plain(self) -> bool:  # type: ignore[override]
        return int.__index__(self) != 0


LiveBool.__name__ = bool.__name__
live_scalars.PLAIN[LiveBool] = bool
for _name in """
    add sub mul truediv floordiv mod pow divmod radd rsub rmul rtruediv rfloordiv rmod rpow rdivmod and or xor
    lshift rshift rand ror rxor rlshift rrshift lt le gt ge eq ne neg abs pos invert hash repr str format
    reduce_ex bool float int round trunc floor ceil
""".split():
    setattr(LiveBool, f"__{_name}__", lambda self, *args, name=f"__{_name}__": getattr(self.settle(), name)(*args))


def make(m: Any, value: bool, expression: GraphTruth, tensor: torch.Tensor) -> LiveBool:
    made = LiveBool.__new__(LiveBool, value)
    made.expression, made.tracer, made.tensor = expression, m, tensor
    return made


def may_be_passed_on(m: Any) -> bool:
    return bool(m.options.fullgraph) and graph_numbers.may_read(m) and not graph_numbers.is_called_by_torch(m)


def compare(m: Any, operation: Callable, operands: tuple) -> LiveBool | None:
    """A comparison of graph numbers as a truth; None if it is a break."""
    if operation not in COMPARISONS or not may_be_passed_on(m):
        return None
    tensor = assert_graph_numbers.condition_of(m, operation, operands)
    if tensor is None:
        return None
    parts = tuple([o.expression if isinstance(o, live_scalars.Live) else o for o in operands])
    value = bool(operation(*map(live_scalars.plain_of, operands)))
    return make(m, value, GraphTruth(operation, parts), tensor)


COMPARISONS = graph_numbers.QUESTIONS - {graph_numbers.TRUTH}


def reads_truth(m: Any, tensor: Any) -> bool:
    """Whether ``tensor.item()`` is such a truth."""
    return (
        type(tensor) in TENSOR_TYPES
        and tensor.dtype is torch.bool
        and tensor.numel() == 1
        and not tensor.is_meta
        and m.knows(tensor)
        and m.frame is not None
        and may_be_passed_on(m)
    )


def read(m: Any, tensor: torch.Tensor) -> LiveBool:
    """``tensor.item()``. As an output of the graph, it is computed from a number."""
    flat = m.perform(torch.Tensor.reshape, tensor, ())
    number = graph_numbers.read(m, m.perform(torch.Tensor.to, flat, torch.int64))
    return make(m, number.plain() != 0, GraphTruth(bool, (number.expression,)), m.perform(torch.clone, flat))


def tensor_of(m: Any, truth: LiveBool, kwargs: dict) -> torch.Tensor:
    """``torch.tensor(truth)``."""
    made: torch.Tensor = m.perform(torch.clone, truth.tensor)
    return m.perform(torch.Tensor.to, made, **kwargs) if kwargs else made
