"""Embedding gradients: adds the gradient rows of an embedding in place to the other gradient of a shared weight.

    e = aten.embedding_dense_backward g, i, 50257, -1        y = aten.index_add x, 0, i, g
    y = aten.add.Tensor x, e                           =>

In most language models one weight is both embedding and last layer. For the few rows that are read, eager fills a
matrix with zeros, and adds two matrices of the vocabulary's size. Here only these rows are added, in place: `x` has no
other reader (`schedule.memory.in_place_library_calls`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from ...ir.graph import Graph, Node, Value
from ...ir.rewriter import Rewriter

ADD, SPREAD = "aten.add.Tensor", "aten.embedding_dense_backward.default"


def accumulate_embedding_gradients(graph: Graph) -> Graph:
    """Returns the graph itself where there is no such sum."""
    if not any(node.op.name == SPREAD for node in graph.nodes):
        return graph
    readers = Counter(value for node in graph.nodes for value in node.operands)
    readers.update(graph.leaving_values())
    sums = {node: found for node in graph.nodes if (found := terms(node, readers)) is not None}
    return RowAdder(graph, sums).run() if sums else graph


def terms(node: Node, readers: Counter[Value]) -> tuple[Value, Node] | None:
    """The value that rows are added to, and the embedding gradient, if the node is such a sum."""
    if node.op.name != ADD or node.kwargs or len(node.args) != 2:
        return None
    for x, spread in (node.args, node.args[::-1]):
        if (
            is_spread(spread, readers)
            and isinstance(x, Value)
            and x.node is not None
            and x.type == spread.type
            and readers[x] == 1
        ):
            return x, spread.node
    return None


def is_spread(value: Any, readers: Counter[Value]) -> bool:
    if not isinstance(value, Value) or value.node is None or value.node.op.name != SPREAD or readers[value] != 1:
        return False
    rows, _, _, _, is_scaled = value.node.args
    return not is_scaled and rows.dtype in (torch.float32, torch.float64) and rows.type.numel > 0


class RowAdder(Rewriter):
    optional = "accumulate_embedding_gradients"

    def __init__(self, graph: Graph, sums: dict[Node, tuple[Value, Node]]):
        super().__init__(graph)
        self.sums = sums

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node not in self.sums:
            return None
        x, spread = self.sums[node]
        rows, places, _, padding, _ = spread.args
        width = x.shape[-1]
        build, places = self.build, self.env[places]
        rows = build.reshape(self.env[rows], (rows.type.numel // width, width))
        places = build.reshape(places, (places.type.numel,))
        if padding >= 0:
            counts = build("ne.Scalar", build.reshape(places, (places.type.numel, 1)), padding)
            rows = build("where.ScalarOther", counts, rows, 0.0)
        return build("index_add.default", self.env[x], 0, places, rows)
