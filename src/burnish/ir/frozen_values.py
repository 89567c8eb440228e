"""Frozen values: those that depend only on weights and constants. They are recomputed only when the weights change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..ops.random_numbers import SEED, SEEDS
from .graph import Graph, Node, Value


def state_values(graph: Graph) -> set[Value]:
    """The values that depend only on constants and on parameters and buffers that the graph does not write."""
    written = {write.input for write in graph.writes}
    found = {value for k, value in enumerate(graph.inputs) if value.is_state and k not in written}
    for node in graph.nodes:
        if found.issuperset(node.operands) and not is_random(node):
            found.update([value for value in node.results if value is not None])
    return found


def is_random(node: Node) -> bool:
    """Whether the node advances torch's random state. Such nodes are neither merged nor eliminated: eager draws too."""
    op = node.op
    if op.target is None:
        return op is SEED or op is SEEDS
    found: bool | None = op.notes.get("draws")
    if found is None:  # torch builds the list of tags again at each access
        found = op.notes["draws"] = torch.Tag.nondeterministic_seeded in op.target.tags
    return found and not is_attention_without_dropout(op.target, node.args, node.kwargs)


def is_attention_without_dropout(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether this is attention without dropout. torch tags GPU attention as random because of its dropout. Its
    backward never draws."""
    if not func.name().startswith("aten::_scaled_dot_product_") or "_for_cpu" in func.name():
        return False
    at, default = next((k, a.default_value) for k, a in enumerate(func._schema.arguments) if a.name == "dropout_p")
    return "_backward" in func.name() or kwargs.get("dropout_p", args[at] if at < len(args) else default) == 0
