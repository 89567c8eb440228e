"""Batch norm folding: multiplies channel scales into the weight of a product, and adds shifts to its bias.

    c = conv x, w, b, ...           =>    w1 = w * s        computed once, until the state changes
    m = c * s  (s: [1, C, 1, 1])          b1 = b * s + t
    y = m + t                             y  = conv x, w1, b1, ...

or, rounded once, y = addcmul t, c, s.

This is what a batch norm in evaluation mode becomes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...ir.frozen_values import state_values
from ...ir.graph import Graph, Node, Value, values_in
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import CONV, LINEAR


def fold_batch_norm(graph: Graph) -> Graph:
    """Returns the graph itself where no product is scaled or shifted by a frozen value."""
    folder = BatchNormFolder(graph)
    return folder.run() if any(map(folder.may_go_in, graph.nodes)) else graph


FOLDED = ("aten.mul.Tensor", "aten.add.Tensor", "aten.addcmul.default")


class BatchNormFolder(Rewriter):
    optional = "fold_batch_norm"

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.state = state_values(graph)
        self.uses = Counter(value for node in graph.nodes for value in node.operands)
        self.uses.update(values_in(tuple(graph.outputs)))
        self.uses.update(write.value for write in graph.writes)

    def may_go_in(self, node: Node) -> bool:
        return (
            node.op.name in FOLDED
            and any(value in self.state for value in node.operands)
            and any(
                value.node is not None and value.node.op in (CONV, LINEAR) and self.uses[value] == 1
                for value in node.operands
            )
        )

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node.op.name == "aten.addcmul.default" and not kwargs and len(args) == 3:
            return self.both(node, node.args, args)
        if node.op.name not in ("aten.mul.Tensor", "aten.add.Tensor") or kwargs or len(args) != 2:
            return None
        for product, factor, made_factor in (
            (node.args[0], node.args[1], args[1]),
            (node.args[1], node.args[0], args[0]),
        ):
            if isinstance(product, Value) and isinstance(factor, Value) and self.takes(node, product, factor):
                call = self.env[product].node
                return self.folded(call, node.op.name == "aten.mul.Tensor", made_factor)
        return None

    def both(self, node: Node, old: tuple, args: tuple) -> Any:
        """Folds shift + product * scale."""
        shift, made_shift = old[0], args[0]
        for product, scale, made_scale in ((old[1], old[2], args[2]), (old[2], old[1], args[1])):
            if (
                all(isinstance(value, Value) for value in (shift, product, scale))
                and self.takes(node, product, scale)
                and self.takes(node, product, shift)
            ):
                scaled = self.folded(self.env[product].node, True, made_scale)
                return self.folded(scaled.node, False, made_shift)
        return None

    def takes(self, node: Node, product: Value, factor: Value) -> bool:
        """Whether the factor has one number for each channel of a product without other readers."""
        if not product.type.is_on_host:
            return False  # there is no prologue on other devices (`compiler.compile_graph`)
        call = product.node
        made = self.env[product].node if call is not None else None
        if made is None or made.op not in (CONV, LINEAR) or self.uses[product] != 1 or factor not in self.state:
            return False
        if (
            made.args[3] is not None
            or made.args[4] is not None
            or not self.is_state(made.args[1])
            or not self.is_state(made.args[2])
        ):
            return False
        result = node.results[0]
        if (
            result is None
            or result.type.shape != product.shape
            or result.dtype != product.dtype
            or factor.dtype != product.dtype
        ):
            return False
        channel = 1 if made.op is CONV else product.ndim - 1
        padded = (1,) * (product.ndim - factor.ndim) + factor.shape
        return all(n == 1 or k == channel for k, n in enumerate(padded))

    def is_state(self, made: Value | None) -> bool:
        """Whether a value of the new graph depends on frozen values only."""
        if made is None or made.is_state:
            return True
        return (
            made.node is not None
            and any(True for _ in made.node.operands)
            and all(self.is_state(value) for value in made.node.operands)
        )

    def folded(self, call: Node, is_scale: bool, factor: Value) -> Value:
        g, (_, weight, bias, *_) = self.build, call.args
        channels = weight.shape[1] * call.args[10] if call.op is CONV and call.args[8] else weight.shape[0]
        factor = (
            g.reshape(factor, (channels,))
            if factor.type.numel == channels
            else g.expand(g.reshape(factor, (1,)), (channels,))
        )
        if is_scale:
            weight = g("mul.Tensor", weight, self.along_channels(call, weight, factor))
            bias = None if bias is None else g("mul.Tensor", bias, factor)
        else:
            bias = factor if bias is None else g("add.Tensor", bias, factor)
        return g.apply_typed(call.op, (call.args[0], weight, bias, *call.args[3:]), {}, (call.results[0].type,))[0]  # type: ignore

    def along_channels(self, call: Node, weight: Value, factor: Value) -> Value:
        """The factors, reshaped to broadcast along the weight's output channels."""
        if call.op is LINEAR or not call.args[8]:
            return self.build.reshape(factor, (weight.shape[0], *(1,) * (weight.ndim - 1)))
        groups, per_group = call.args[10], weight.shape[1]
        if groups == 1:
            return self.build.reshape(factor, (1, per_group, *(1,) * (weight.ndim - 2)))
        rows = weight.shape[0] // groups
        spread = self.build.expand(self.build.reshape(factor, (groups, 1, per_group)), (groups, rows, per_group))
        return self.build.reshape(spread, (weight.shape[0], per_group, *(1,) * (weight.ndim - 2)))
