"""Operators with a decomposition are written in simpler ones.

    y = aten._softmax.default x, -1, False    =>    m = max x, (1,)
                                                    e = aten.exp.default (x - m)
                                                    y = e / sum e, (1,)

A decomposition may use operators that have one themselves: what it adds is taken apart in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.build import Builder
from ..ir.graph import Alias, Graph, Node, Value, Write, replaced
from ..ops.record import NoRule, Op


def decompose(graph: Graph, keep: Callable[[Node], bool] = lambda node: False) -> Graph:
    """`keep` says of a node that it stays whole although it could be taken apart."""
    new = Graph()
    build = Recursive(new, keep)
    env: dict[Value, Any] = {}
    for value in graph.inputs:
        env[value] = new.copy_input(value)
    for node in graph.nodes:
        build.line = node.line
        args, kwargs = replaced(node.args, env.__getitem__), {k: replaced(v, env.__getitem__)
                                                             for k, v in node.kwargs.items()}
        results = None if keep(node) else build.taken_apart(node.op, args, kwargs)
        if results is None:
            results = build.apply_typed(node.op, args, kwargs, tuple(v and v.type for v in node.results))
        elif isinstance(results, Value):
            results = (results,)
        env.update((old, made) for old, made in zip(node.results, results, strict=True) if old is not None)
    new.outputs = [out if isinstance(out, Alias) else replaced(out, env.__getitem__) for out in graph.outputs]
    new.writes = [Write(write.input, env[write.value]) for write in graph.writes]
    return new


class Recursive(Builder):
    """A builder that takes apart what it is asked to add."""

    def __init__(self, graph: Graph, keep: Callable[[Node], bool]):
        super().__init__(graph)
        self.keep = keep

    def taken_apart(self, op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the operator's decomposition gives, or None where it has none for these arguments."""
        if op.decompose is None:
            return None
        position = len(self.graph.nodes)
        try:
            return op.decompose(self, *args, **kwargs)
        except NoRule:
            del self.graph.nodes[position:]
            return None

    def apply(self, op: Op, args: tuple, kwargs: dict[str, Any] | None = None) -> Any:
        found = self.taken_apart(op, args, kwargs or {})
        return super().apply(op, args, kwargs) if found is None else found
