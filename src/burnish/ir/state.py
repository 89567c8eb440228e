"""What follows from a module's state, or from nothing: it is computed once, and again when the state has changed."""

from __future__ import annotations

import torch

from ..ops.random import SEED
from .graph import Graph, Node, Value


def state_values(graph: Graph) -> set[Value]:
    """The values that depend on nothing but parameters and buffers which the graph does not write, and constants."""
    written = {write.input for write in graph.writes}
    found = {value for k, value in enumerate(graph.inputs) if value.is_state and k not in written}
    for node in graph.nodes:
        if found.issuperset(node.operands) and not is_random(node):
            found.update([value for value in node.results if value is not None])
    return found


def is_random(node: Node) -> bool:
    """Whether it advances torch's random state. Such nodes are neither joined nor left out: eager draws too."""
    op = node.op
    if op.target is None:
        return op is SEED
    found: bool | None = op.notes.get("draws")
    if found is None:  # torch makes its list of tags anew each time
        found = op.notes["draws"] = torch.Tag.nondeterministic_seeded in op.target.tags
    return found
