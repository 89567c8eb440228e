"""Removes the barriers that kept recomputed nodes from common subexpression elimination.

    x1 = again x, None                    y1 = aten.sin.default x
    y1 = aten.sin.default x1        =>

    g  = linear t, w                      g  = linear t, w
    h  = relu g                           h  = relu g
    x1 = again x, h                 =>    x1 = held x, g
    y1 = aten.sin.default x1              y1 = aten.sin.default x1

`again` keeps equal nodes from being merged (`lower.trace.trace_activation_checkpointing`). After this pass, no pass
may merge them. Where forward and backward are one program, `held` remains: it keeps the recomputation out of
forward's kernels. So the value exists twice, each time briefly, instead of once throughout. It waits for a library
call, whose result is in memory anyway.
"""

from __future__ import annotations

import heapq
from typing import Any

from ...ir.graph import Graph, Node, Value
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import ORDER_AFTER, RECOMPUTE_BARRIER, REDUCTION_OF, RUN_ALONG, VIEW
from .eliminate_dead_and_common_nodes import joined_view


def drop_recompute_barriers(graph: Graph) -> Graph:
    return BarrierRemover(graph).run() if any(node.op is RECOMPUTE_BARRIER for node in graph.nodes) else graph


class BarrierRemover(Rewriter):
    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.place = {node: k for k, node in enumerate(graph.nodes)}
        self.calls: dict[Value, Value | None] = {}

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node.op is RECOMPUTE_BARRIER:
            x, after = args
            call = None if after is None else self.call_before(node.args[1])
            return x if call is None else self.build.apply(ORDER_AFTER, (x, self.env[call]))
        if node.op is VIEW and args[0].type == node.args[0].type:
            return joined_view(self.build, {}, args[0], args[1], node.results[0])
        return None

    def call_before(self, after: Value) -> Value | None:
        """The last library call that a value depends on."""
        if after not in self.calls:
            self.calls[after] = self.found_before(after)
        return self.calls[after]

    def found_before(self, after: Value) -> Value | None:
        waiting: list[int] = []
        nodes, seen = list(self.place), set()

        def add(value: Value) -> None:
            at = -1 if value.node is None else self.place[value.node]
            if at >= 0 and at not in seen:
                seen.add(at)
                heapq.heappush(waiting, -at)

        add(after)
        while waiting:
            node = nodes[-heapq.heappop(waiting)]
            if is_call(node):
                return node.results[0]
            for value in node.operands:
                add(value)
        return None


def is_call(node: Node) -> bool:
    op = node.op
    return (
        op.rule is None
        and op not in (VIEW, RECOMPUTE_BARRIER)
        and op.name not in REDUCTION_OF
        and op.name not in RUN_ALONG
        and bool(node.results)
        and node.results[0] is not None
    )
