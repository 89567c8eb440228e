"""Graph numbers: Python numbers that torch's own code reads from tensors and computes with, kept in the graph.

An optimizer that keeps its step count in a tensor reads it (``step.item()``), computes with it and passes the result to
a torch operation. Python need not know the number for that, so the computation is recorded like a torch call:

    step = step_t.item()                    item = step_t.item()
    bias = 1 - 0.9 ** step                  pow_1 = operator.pow(0.9, item);  sub = operator.sub(1, pow_1)
    p.addcdiv_(m, d, value=-lr / bias)      ...;  p.addcdiv_(m, d, value=truediv)

In the trace such a number is a live scalar (``live_scalars``) whose expression is a handle of the recorder. The segment
ends where Python needs the value, as for a text or a list index. The number is then a slot of the next segment. A
comparison becomes a guard if the number comes from a counter: a tensor to which the graph only adds constants before
the read. The guard computes the count in advance (RAdam changes its formula after five steps).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from .. import breaks
from ..engine.interpreted_or_native import is_trusted_namespace
from ..guards.tensor_metadata import TENSOR_TYPES
from ..pytorch import torch_calls
from . import live_scalars

# Recorded operations. All of these return a number for numbers, or raise.
RECORDED = frozenset(
    (
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.floordiv,
        operator.mod,
        operator.pow,
        operator.neg,
        operator.pos,
        operator.abs,
        abs,
        min,
        max,
        int,
        float,
        math.sqrt,
        math.exp,
        math.log,
        math.sin,
        math.cos,
        math.tanh,
        math.pow,
        math.log2,
        math.log10,
        math.fabs,
    )
)
SAME_KIND = frozenset((min, max))  # the result has the type of one operand, so both must have the same type


class GraphNumber(live_scalars.Expression):
    """The expression of a graph number: the recorded call."""

    __slots__ = ("handle",)
    in_graph = True

    def __init__(self, handle: Any):
        super().__init__(_number_of_the_graph, ())
        self.handle = handle

    def render(self, writer: Any) -> str:
        text: str = writer.graph_number(self.handle)
        return text

    def words(self) -> str:
        return "a number read from a tensor"


def _number_of_the_graph() -> None:
    raise AssertionError("a number of the graph is computed by the graph")


def stays_in_graph(m: Any, tensor: Any) -> bool:
    """Whether ``tensor.item()`` is recorded here: called by torch's own code, on a tensor that the graph knows."""
    return (
        m.frame is not None
        and is_trusted_namespace(m.frame.globals)
        and type(tensor) in TENSOR_TYPES
        and tensor.numel() == 1
        and not tensor.dtype.is_complex
        and tensor.dtype is not torch.bool
        and not tensor.is_meta
        and m.knows(tensor)
    )


def read(m: Any, tensor: torch.Tensor) -> Any:
    """``tensor.item()`` as a graph number."""
    value = m.plainly(tensor.item)
    m.recorder.seen += 1
    return live_scalars.make(value, GraphNumber(m.recorder.number("item", (tensor,))), m)


def tensor_of(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.as_tensor(number)`` of a graph number; None for any other call."""
    number = args[0] if len(args) == 1 else None
    if (
        not isinstance(number, live_scalars.Live)
        or not number.expression.in_graph
        or not kwargs.keys() <= {"dtype", "device"}
    ):
        return None
    value = m.plainly(torch.as_tensor, number.plain(), **kwargs)
    m.recorder.seen += 1
    m.recorder.record(torch.full, ((), number), {"dtype": value.dtype, "device": value.device}, value, True)
    return value


def apply(m: Any, operation: Callable, operands: tuple) -> Any:
    """``operation(*operands)`` with at least one graph number among the operands."""
    values = [o.plain() if isinstance(o, live_scalars.Live) else o for o in operands]
    if operation in SAME_KIND and len(operands) == 2 and type(values[0]) is not type(values[1]):
        # The result is one of the operands, unchanged: which one is guarded in advance.
        first, second = operands
        return second if apply(m, operator.gt if operation is max else operator.lt, (second, first)) else first
    if operation in RECORDED and not (operation in SAME_KIND and len(set(map(type, values))) > 1):
        try:
            value = operation(*values)
        except Exception:
            value = None  # an error for this run's numbers; reporting it needs the numbers
        if type(value) in (int, float):
            return live_scalars.make(value, GraphNumber(m.recorder.number(operation, operands)), m)
    if operation in QUESTIONS:
        try:
            question = live_scalars.Expression(operation, tuple(before_the_graph(m, o) for o in operands))
        except NotBeforehand:
            pass
        else:
            answer = bool(operation(*values))
            if question.sources():
                m.guard_outcome(question, answer)
            return answer
    for operand in operands:
        live_scalars.settled(operand)
    raise AssertionError("a number of the graph has been settled")


def refuse(m: Any) -> None:
    """Python needs the number itself."""
    m.stop(breaks.LIVE_VALUE, "a number read from a tensor")


def settle_numbers(m: Any, value: Any, depth: int = 0) -> None:
    """Torch is about to take numbers in a place where the graph cannot provide them."""
    if isinstance(value, live_scalars.Live):
        if value.expression.in_graph:
            refuse(m)
    elif isinstance(value, (tuple, list)) and depth < 4:
        for part in value:
            settle_numbers(m, part, depth + 1)


# ---- numbers that are known before the graph runs


class NotBeforehand(Exception):
    """The number is unknown until the graph has run."""


QUESTIONS = frozenset((operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.truth))


def before_the_graph(m: Any, value: Any) -> Any:
    """A live scalar as an expression over sources, or a constant."""
    if not isinstance(value, live_scalars.Live):
        return value
    return of_handle(m, value.expression.handle) if value.expression.in_graph else value.expression


def of_handle(m: Any, handle: Any) -> Any:
    if handle.call is None:
        if isinstance(handle.source, live_scalars.Expression):
            return handle.source
        raise NotBeforehand
    call = m.recorder.calls[handle.call]
    if call.target == "item":
        return of_counter(m, call.args[0], handle.call)
    if call.target not in RECORDED:
        raise NotBeforehand
    return live_scalars.Expression(call.target, tuple(of_handle(m, a) if is_handle(a) else a for a in call.args))


def of_counter(m: Any, tensor: Any, end: int) -> Any:
    """The result of ``item()`` on a tensor after ``end`` calls."""
    calls = m.recorder.calls
    added = []
    for call in calls[:end]:
        if makes_something_new(call):
            continue
        first = call.args[0] if call.args else None
        others = (*call.args[1:], *call.kwargs.values())
        if any(tensor is a or isinstance(a, (list, tuple)) and any(tensor is part for part in a) for a in others):
            raise NotBeforehand
        is_one_of = isinstance(first, (list, tuple)) and any(tensor is part for part in first)
        if call.target == "add_" and first is tensor or call.target is torch._foreach_add_ and is_one_of:
            added.append((constant_of(m, call.args[1]), call.kwargs.get("alpha", 1)))
        elif call.target != "item" and (first is tensor or is_one_of):
            raise NotBeforehand
    start = live_scalars.Expression(None, (tensor.source,)) if tensor.call is None else constant_of(m, tensor)
    return live_scalars.Expression(counted, (start, tuple(added)))


def makes_something_new(call: Any) -> bool:
    """Whether a call computes only from its arguments, writes to none of them, and returns no alias of them."""
    name = call.target if isinstance(call.target, str) else getattr(call.target, "__name__", "_")
    return (
        name in torch_calls.VALUE_CALLS
        and (name.endswith("__") or not name.endswith("_"))
        and name != "dropout"
        and "out" not in call.kwargs
    )


CONSTANTS = (torch.tensor, torch.as_tensor, torch.ones, torch.zeros)


def constant_of(m: Any, value: Any) -> Any:
    """A number that is written in the program, or a tensor made from one."""
    if not is_handle(value):
        return value
    call = None if value.call is None or value.path else m.recorder.calls[value.call]
    if call is None or call.target not in CONSTANTS or any(map(is_handle, (*call.args, *call.kwargs.values()))):
        raise NotBeforehand
    return call.target(*call.args, **call.kwargs)


def counted(start: torch.Tensor, added: tuple) -> Any:
    count = start.detach().clone()
    for number, factor in added:
        count.add_(number, alpha=factor)
    return count.item()


def is_handle(value: Any) -> bool:
    return hasattr(value, "call") and hasattr(value, "source")
