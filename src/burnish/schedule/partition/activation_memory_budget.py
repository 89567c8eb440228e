"""Rematerialization under a memory budget: the values that cost least for their memory are computed again.

    choose(crossing, 1.0)      what `Crossing.choose` says
    choose(crossing, 0.5)      half as many bytes of what nodes made

The nodes that can be run again stand in the order of the time they take for each byte they make, and the fewest of the
first ones are run again with which the rest fits. With a budget of nothing all is computed again from the inputs, but
for what draws random numbers; then what was saved is in memory all the same when backward has begun, as with a
checkpoint around the whole program. Best is in between.
"""

from __future__ import annotations

import bisect

from ...ir.frozen_values import is_random
from ...ir.graph import Node, Value
from ...ops.burnish_primitives import CONV, LINEAR, REDUCE, RUN, RUN_ALONG
from ...ops.operator_record import Pointwise
from .saved_or_recomputed import Crossing

Choice = tuple[list[Value], set[Node], dict[Node, Value]]

OPERATIONS_PER_BYTE = 16
"""How many operations of a product take as long as moving a byte. It only has to put nodes in order."""

OURS = frozenset((RUN, LINEAR, CONV, *REDUCE.values(), *RUN_ALONG.values()))


def choose(crossing: Crossing, budget: float) -> Choice:
    found = crossing.choose()
    if budget >= 1:
        return found
    most = budget * size_of(found, crossing)
    nodes = sorted(
        (
            node
            for node in crossing.place
            if node in crossing.early and is_repeatable(node) and crossing.made_for.isdisjoint(node.results)
        ),
        key=work_for_each_byte,
    )

    def with_first(count: int) -> Choice:
        crossing.asked_again = set(nodes[:count])
        return crossing.choose()

    enough = bisect.bisect_left(range(len(nodes)), True, key=lambda n: size_of(with_first(n), crossing) <= most)
    return with_first(enough)


def size_of(found: Choice, crossing: Crossing) -> int:
    """Inputs and outputs are there anyway."""
    return sum(value.type.bytes for value in found[0] if value.node is not None and value not in crossing.made_for)


def work_for_each_byte(node: Node) -> float:
    """How long it takes, as the bytes that could be moved meanwhile."""
    flops = node.args[0].spec.flops if node.op is RUN else 0
    made = sum(value.type.bytes for value in node.results if value is not None)
    return (flops / OPERATIONS_PER_BYTE + made + sum(value.type.bytes for value in node.operands)) / max(made, 1)


def is_repeatable(node: Node) -> bool:
    """Whether it gives the same again and does nothing else: somebody's own operator may do anything."""
    if is_random(node) or not node.results:
        return False
    if node.op.target is None:
        return node.op in OURS or isinstance(node.op.rule, Pointwise)
    return node.op.target.namespace == "aten"
