"""Writes through ``x.data`` to what autograd saved for backward: the graph is refused.

    y = gru(s)
    s.data.mul_(2)              autograd does not see it, so eager's backward reads what is in the memory by then
    y.sum().backward()

A call that is one library call forward and one backward would compute its gradient of the values of forward.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....foundation.torch_private import OpOverload
from ....ir.alias_analysis import aliased_argument
from ....ir.graph import Graph, Node, Value
from ....ir.untraceable_graph import Untraceable
from ..schema_facts import signature_of


def refuse_unseen_writes(graph: Graph, forward: Node | None, saved: Sequence[Value]) -> None:
    """To be called in a backward function. Autograd itself raises at the writes that it sees."""
    memory = {memory_of(value) for value in saved}
    for node in reversed(graph.nodes):
        if node is forward:
            return
        if node.results or not isinstance(node.op.target, OpOverload):
            continue
        for at in signature_of(node.op.target).written:
            written = node.args[at] if isinstance(at, int) else node.kwargs[at]
            if isinstance(written, Value) and memory_of(written) in memory:
                raise Untraceable("it writes through .data to a tensor that backward reads")


def memory_of(value: Value) -> Value:
    """The value that it is a view of."""
    while value.node is not None and (source := aliased_argument(value.node)) is not None:
        value = source
    return value
