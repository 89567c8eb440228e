"""Avoids slow subnormal numbers: softmax weights that only products read are clamped to a minimum.

    w = aten.div.Tensor e, sum of e           w  = aten.div.Tensor e, sum of e
    y = aten.bmm.default w, v           =>    w1 = aten.where.self w == 0, w, clamp_min(w, 2**-104)
                                              y  = aten.bmm.default w1, v

A softmax over masked scores (lowered by 100, as in shifted-window attention) has many weights below 2**-126. On some
processors a multiplication by one takes a hundred times as long; a whole product took ninety times as long. A row's
weights sum to 1, so the increase is smaller than the sum's rounding error, unless values differ by more than 2**78.
Zero stays zero, and NaN stays NaN.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.graph import Graph, Node, Value
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import REDUCE, VIEW
from ...tensors.views.view_maps import Expand, Permute, Reshape

LEAST = 2.0**-104
"""Its product with a value is not subnormal either, for values down to 2**-22."""

PRODUCT = "aten.bmm.default"


def clamp_subnormal_softmax(graph: Graph) -> Graph:
    """Returns the graph itself where no product has such weights."""
    found = weights(graph)
    return SubnormalClamper(graph, found).run() if found else graph


def weights(graph: Graph) -> set[Value]:
    made = {node.results[0] for node in graph.nodes if is_softmax(node)}
    if not made:
        return set()
    readers = graph.readers()
    leaving = set(graph.leaving_values())

    def weighs_only(value: Value | None) -> bool:
        return value not in leaving and all(
            keeps_rows(reader) and weighs_only(reader.results[0])
            if reader.op is VIEW
            else reader.op.name == PRODUCT and reader.args[0] is value and reader.args[1] is not value
            for reader in readers.get(value, ())
        )  # type: ignore[arg-type]

    return {value for value in made if value is not None and weighs_only(value)}


def is_softmax(node: Node) -> bool:
    if node.op.name != "aten.div.Tensor" or node.kwargs or not all(isinstance(arg, Value) for arg in node.args):
        return False
    powers, sums = (arg.node for arg in node.args)
    return (
        node.results[0].dtype is torch.float32
        and powers is not None
        and sums is not None
        and powers.op.name == "aten.exp.default"
        and sums.op is REDUCE["sum"]
        and sums.args[0] is node.args[0]
        and sums.args[1] == (node.results[0].ndim - 1,)
    )


def keeps_rows(view: Node) -> bool:
    """Whether the view keeps the rows of its source: a product sums along them."""
    shape = view.args[0].shape
    for step in view.args[1]:
        match step:
            case Reshape() | Expand() if step.shape[-1:] == shape[-1:]:
                pass
            case Permute() if step.dims[-1] == len(shape) - 1:
                pass
            case _:
                return False
        shape = step.result_shape(shape)
    return True


class SubnormalClamper(Rewriter):
    optional = "clamp_subnormal_softmax"

    def __init__(self, graph: Graph, found: set[Value]):
        super().__init__(graph)
        self.found = found

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Value | None:
        if node.results and node.results[0] in self.found:
            (weight,) = self.copy_node(node, args, kwargs)
            g = self.build
            return g("where.self", g("eq.Scalar", weight, 0), weight, g("clamp_min", weight, LEAST))
        return None
