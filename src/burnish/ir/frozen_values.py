"""What follows from a module's state, or from nothing: it is computed once, and again when the state has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..ops.random_numbers import SEED, SEEDS
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
        return op is SEED or op is SEEDS
    found: bool | None = op.notes.get("draws")
    if found is None:  # torch makes its list of tags anew each time
        found = op.notes["draws"] = torch.Tag.nondeterministic_seeded in op.target.tags
    return found and not drops_nothing(op.target, node.args, node.kwargs)


def drops_nothing(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Attention on a GPU is marked as random: it may drop something. Its gradient never draws."""
    if not func.name().startswith("aten::_scaled_dot_product_") or "_for_cpu" in func.name():
        return False
    at, default = next((k, a.default_value) for k, a in enumerate(func._schema.arguments) if a.name == "dropout_p")
    return "_backward" in func.name() or kwargs.get("dropout_p", args[at] if at < len(args) else default) == 0
