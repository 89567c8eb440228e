"""Whether a node may raise for the data it is given, and how that is checked ahead of it.

y = aten.index_select.default x, 0, i            conditions: each element of i is in 0 … 4

c = aten.lt.Scalar i, 0
d = aten.ge.Scalar i, 5                          the node `check` before it
e = any (aten.bitwise_or.Tensor c, d)
check e, …
"""

from __future__ import annotations

from typing import Any

import torch

from ..ops.burnish_primitives import CHECK
from ..ops.data_dependent_errors import UNKNOWN, Condition, Conditions, InRange, NotZero
from .frozen_values import is_random
from .graph import Node, Value
from .graph_builder import Builder

OURS = ("aten", "prims")
COMPARED = (torch.int64, torch.int32)
"""The dtypes of indices that a bound is compared with as it is."""


def conditions_of(node: Node) -> Conditions:
    """Under which it does not raise; none, if it never does. A node without results is a check itself."""
    if not node.results:
        return UNKNOWN
    check = node.op.check
    if check is None:
        target = node.op.target
        return () if target is None or target.namespace in OURS else UNKNOWN
    found = check(*node.args, **node.kwargs)
    if not found:
        return found
    if any(value.type.device.type != "cpu" for value in node.operands):
        return ()  # the device itself looks at the data, and a failure ends the process
    return found if all(map(can_be_checked, found)) else UNKNOWN


def can_be_checked(condition: Condition) -> bool:
    return not isinstance(condition, InRange) or condition.index.dtype in COMPARED


def may_fail(node: Node) -> bool:
    return conditions_of(node) != ()


def is_kept(node: Node) -> bool:
    """Whether it does something besides making values: it draws random numbers, or may raise. It stays, though nothing
    reads its results."""
    return is_random(node) or may_fail(node)


def violated(build: Builder, condition: Condition) -> Value:
    """One bool: whether any element breaks the condition."""
    wrong: Any
    if isinstance(condition, InRange):
        index = condition.index
        wrong = build(
            "bitwise_or.Tensor", build("lt.Scalar", index, condition.low), build("ge.Scalar", index, condition.size)
        )
        if condition.ignored is not None:
            wrong = build("bitwise_and.Tensor", wrong, build("ne.Scalar", index, condition.ignored))
    elif isinstance(condition, NotZero):
        wrong = build("eq.Scalar", condition.divisor, 0)
    else:
        right = build(
            "bitwise_and.Tensor", build("ge.Scalar", condition.value, 0), build("le.Scalar", condition.value, 1)
        )
        wrong = build("bitwise_not", right)  # NaN is wrong, too
    return build.reduce("any", wrong, ())


def add_check(build: Builder, condition: Condition, name: str, args: tuple = (), kwargs: Any = ()) -> None:
    """``args`` and ``kwargs``: those of the operator `name`, which then raises what it raises, where they are known."""
    build.apply_typed(CHECK, (violated(build, condition), name, args, tuple(kwargs), covers(condition)), {}, ())


def covers(condition: Condition) -> tuple:
    """What a check is about, as arguments of a node."""
    if isinstance(condition, InRange):
        return ("in_range", condition.index, condition.low, condition.size, condition.ignored)
    return ("not_zero", condition.divisor) if isinstance(condition, NotZero) else ("probability", condition.value)


__all__ = ["add_check", "conditions_of", "covers", "is_kept", "may_fail"]
