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
        operands = list(node.operands)
        if not is_random(node) and all(value in found for value in operands):
            found.update(value for value in node.results if value is not None)
    return found


def is_random(node: Node) -> bool:
    """Whether it advances torch's random state. Such nodes are neither joined nor left out: eager draws too."""
    if node.op.target is None:
        return node.op is SEED
    return torch.Tag.nondeterministic_seeded in node.op.target.tags
