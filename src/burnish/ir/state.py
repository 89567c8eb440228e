"""What follows from a module's state, or from nothing: it is computed once, and again when the state has changed."""

from __future__ import annotations

import torch

from .graph import Graph, Value


def state_values(graph: Graph) -> set[Value]:
    """The values that depend on nothing but parameters and buffers which the graph does not write, and constants."""
    written = {write.input for write in graph.writes}
    found = {value for k, value in enumerate(graph.inputs) if value.is_state and k not in written}
    for node in graph.nodes:
        operands = list(node.operands)
        is_random = node.op.target is not None and torch.Tag.nondeterministic_seeded in node.op.target.tags
        if not is_random and all(value in found for value in operands):
            found.update(value for value in node.results if value is not None)
    return found
