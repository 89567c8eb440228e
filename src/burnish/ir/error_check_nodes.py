"""Data-dependent errors of nodes: whether a node may raise for its data, and the `check` node that tests it first.

y = aten.index_select.default x, 0, i            condition: each element of i is in 0 … 4

c = aten.lt.Scalar i, 0
d = aten.ge.Scalar i, 5                          the node `check` before it
e = any (aten.bitwise_or.Tensor c, d)
check e, …
"""

from __future__ import annotations

from typing import Any

import torch

from ..ops.burnish_primitives import CHECK
from ..ops.error_conditions import UNKNOWN, Condition, Conditions, InRange, NotZero
from .frozen_values import is_random
from .graph import Node, Value
from .graph_builder import Builder

OURS = ("aten", "prims")
COMPARED = (torch.int64, torch.int32)
"""Index dtypes that are compared with a bound unconverted."""


def conditions_of(node: Node) -> Conditions:
    """The conditions under which the node does not raise; empty if it never does. A node without results is a check."""
    if not node.results:
        return UNKNOWN
    check = node.op.check
    if check is None:
        target = node.op.target
        return () if target is None or target.namespace in OURS else UNKNOWN
    found = check(*node.args, **node.kwargs)
    if not found:
        return found
    if any(not value.type.is_on_host for value in node.operands):
        return ()  # the kernel asserts on the device, and a failure ends the process
    return found if all(map(can_be_checked, found)) else UNKNOWN


def can_be_checked(condition: Condition) -> bool:
    return not isinstance(condition, InRange) or condition.index.dtype in COMPARED


def may_fail(node: Node) -> bool:
    return conditions_of(node) != ()


def is_kept(node: Node) -> bool:
    """Whether the node has a side effect: it draws random numbers, or may raise. Dead code elimination keeps it."""
    return is_random(node) or may_fail(node)


def violated(build: Builder, condition: Condition) -> Value:
    """A bool value: whether any element violates the condition."""
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
        wrong = build("bitwise_not", right)  # NaN violates it as well
    return build.reduce("any", wrong, ())


def add_check(build: Builder, condition: Condition, name: str, args: tuple = (), kwargs: Any = ()) -> None:
    """Add a `check` node. ``args`` and ``kwargs``, if known, are those of the operator `name`: after a failed check it
    is called and raises its own error."""
    build.apply_typed(CHECK, (violated(build, condition), name, args, tuple(kwargs), covers(condition)), {}, ())


def covers(condition: Condition) -> tuple:
    """The condition, encoded as arguments of a node."""
    if isinstance(condition, InRange):
        return ("in_range", condition.index, condition.low, condition.size, condition.ignored)
    return ("not_zero", condition.divisor) if isinstance(condition, NotZero) else ("probability", condition.value)
