"""Checks of graph numbers: a comparison with one outcome that the program continues with does not end the graph.

    n = x.max().item()                      item = amax.item();  full = torch.full((), item)
    if n > 1000:                            le = full <= 1000;   _assert_async = torch._assert_async(le)
        raise ValueError("too large")
    torch._check(n >= 0)                    ge = full >= 0;      _assert_async_1 = torch._assert_async(ge)

The number is compared as a tensor of a type that holds it exactly. If a check fails in a later run, the segment runs
again as plain Python (``tensor_assertions``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from ...foundation.torch_private import check as torch_check
from ...foundation.torch_private import check_is_size as torch_check_is_size
from ..interpreter.frames import MISSING
from ..pytorch import tensor_assertions
from . import live_scalars

NEAR = 4
"""How far below the top of the stack a call that is being prepared is looked for."""


def outcome(m: Any, operation: Callable, operands: tuple) -> bool | None:
    """The outcome of a comparison of graph numbers, if the graph can check it; None if Python needs to know it."""
    values = list(map(live_scalars.plain_of, operands))
    kinds = set(map(type, values))
    if not kinds <= {int, float} or m.frame is None or not tensor_assertions.is_checked_by_graph(m):
        return None
    truth = bool(operation(*values))
    is_argument_of_check = any(value is torch_check for value in m.frame.stack[-NEAR:])
    if not is_argument_of_check and tensor_assertions.wanted(m) is not truth:
        return None
    condition = condition_of(m, operation, operands)
    if condition is None:
        return None
    tensor_assertions.check(m, condition if truth else m.perform(torch.logical_not, condition))
    return truth


def condition_of(m: Any, operation: Callable, operands: tuple) -> torch.Tensor | None:
    """A comparison as a tensor; None if no dtype holds the numbers exactly."""
    kinds = {type(live_scalars.plain_of(o)) for o in operands}
    if not kinds <= {int, float}:
        return None
    constants = [o for o in operands if not isinstance(o, live_scalars.Live)]
    is_mixed = len(kinds) > 1
    if is_mixed and not constants or any(abs(c) >= tensor_assertions.EXACT for c in constants if is_mixed or c == c):
        return None
    dtype = torch.float64 if float in kinds else torch.int64
    parts = [as_tensor(m, o, dtype) if isinstance(o, live_scalars.Live) else o for o in operands]
    if operation is operator.truth:
        parts, operation = [parts[0], 0], operator.ne
    condition: torch.Tensor = m.perform(operation, *parts)
    return condition


def as_tensor(m: Any, number: Any, dtype: torch.dtype, device: Any = None) -> torch.Tensor:
    """A tensor without dimensions that holds a number."""
    if getattr(m.region, "lowers", False):  # the operator that makes the tensor takes a constant
        number = live_scalars.settled(number)
    plain = live_scalars.plain_of(number)
    value = m.plainly(torch.full, (), plain, dtype=dtype, device=device)
    m.answer = None  # this is not the result of the instruction
    m.recorder.seen += 1
    m.recorder.record(torch.full, ((), number), {"dtype": dtype, "device": value.device}, value, True)
    return value


def check(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch._check(condition)`` with a condition that is known to hold: see ``outcome``."""
    return None if args and args[0] is True else MISSING


def check_is_size(m: Any, args: tuple, kwargs: dict) -> Any:
    """``torch._check_is_size(number)``."""
    number = args[0] if len(args) == 1 and not kwargs.keys() - {"message"} else None
    if not isinstance(number, live_scalars.LiveInt) or not number.expression.in_graph or number.plain() < 0:
        return MISSING
    if not tensor_assertions.is_checked_by_graph(m):
        return MISSING
    tensor_assertions.check(m, m.perform(operator.ge, as_tensor(m, number, torch.int64), 0))
    return None


HANDLERS = {torch_check: check, torch_check_is_size: check_is_size}
