"""Activation memory budget: recomputes the values that cost the least time for each byte they save.

    choose(chooser, 1.0)      the result of `RecomputeChooser.choose`
    choose(chooser, 0.5)      half as many bytes of saved intermediate values

Nodes that can run again are sorted by their time for each byte of result. The shortest prefix of them is recomputed
with which the saved values fit the budget. A budget of zero recomputes everything from the inputs, except random
numbers. Then the recomputed values are all in memory when backward starts, as with one checkpoint around the whole
program. The best budget is in between.
"""

from __future__ import annotations

import bisect

from ...ir.frozen_values import is_random
from ...ir.graph import Node, Value
from ...ops.burnish_primitives import CONV, LINEAR, REDUCE, RUN, RUN_ALONG
from ...ops.operator_record import Pointwise
from .saved_or_recomputed import RecomputeChooser

Choice = tuple[list[Value], set[Node], dict[Node, Value]]

OPERATIONS_PER_BYTE = 16
"""How many operations of a product take as long as moving one byte. It only has to sort nodes."""

OURS = frozenset((RUN, LINEAR, CONV, *REDUCE.values(), *RUN_ALONG.values()))


def choose(chooser: RecomputeChooser, budget: float) -> Choice:
    found = chooser.choose()
    if budget >= 1:
        return found
    most = budget * size_of(found, chooser)
    nodes = sorted(
        (
            node
            for node in chooser.place
            if node in chooser.early and is_repeatable(node) and chooser.made_for.isdisjoint(node.results)
        ),
        key=work_for_each_byte,
    )

    def with_first(count: int) -> Choice:
        chooser.asked_again = set(nodes[:count])
        return chooser.choose()

    enough = bisect.bisect_left(range(len(nodes)), True, key=lambda n: size_of(with_first(n), chooser) <= most)
    return with_first(enough)


def size_of(found: Choice, chooser: RecomputeChooser) -> int:
    """Bytes saved. Inputs and outputs are not counted: they are in memory anyway."""
    return sum(value.type.bytes for value in found[0] if value.node is not None and value not in chooser.made_for)


def work_for_each_byte(node: Node) -> float:
    """Estimated time for each byte of result, measured in bytes moved."""
    flops = node.args[0].spec.flops if node.op is RUN else 0
    made = sum(value.type.bytes for value in node.results if value is not None)
    return (flops / OPERATIONS_PER_BYTE + made + sum(value.type.bytes for value in node.operands)) / max(made, 1)


def is_repeatable(node: Node) -> bool:
    """Whether it has the same result again and no side effects. A user-defined operator may have any."""
    if is_random(node) or not node.results:
        return False
    if node.op.target is None:
        return node.op in OURS or isinstance(node.op.rule, Pointwise)
    return node.op.target.namespace == "aten"
