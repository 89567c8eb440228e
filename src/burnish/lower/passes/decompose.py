"""Decomposition: replaces operators by simpler operators, where a decomposition is known.

    y = aten._softmax.default x, -1, False    =>    m = max x, (1,)
                                                    e = aten.exp.default (x - m)
                                                    y = e / sum e, (1,)

A decomposition may use operators that have one themselves: these are decomposed in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.graph import Graph, Node, Value, values_in
from ...ir.graph_builder import Builder
from ...ir.rewriter import Rewriter
from ...ops.operator_record import NoRule, Op
from ...tensors.tensor_types import NumberType


def decompose(graph: Graph, keep: Callable[[Node], bool] = lambda node: False) -> Graph:
    """`keep` says which nodes are not decomposed although they could be."""
    return Decomposer(graph, keep).run()


class Decomposer(Rewriter):
    def __init__(self, graph: Graph, keep: Callable[[Node], bool]):
        super().__init__(graph)
        self.keep, self.optional = keep, "decompose"
        self.build: Recursive = Recursive(self.new)
        self.read = {value for node in graph.nodes for value in node.operands}
        self.read.update(graph.leaving_values())

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        found = None if self.keep(node) else self.build.taken_apart(node.op.decompose, args, kwargs)
        if found is None and not self.read.intersection(node.results[1:]):
            value = self.build.taken_apart(node.op.decompose_value, args, kwargs)
            found = None if value is None else (value, *[None] * (len(node.results) - 1))
        if found is None:
            return None
        # Results such as statistics have eager's dtype, whatever dtype they are computed in.
        results = (found,) if isinstance(found, Value) else found
        return tuple(
            made if old is None or made is None else self.build.convert(made, old.dtype)
            for old, made in zip(node.results, results, strict=True)
        )

    def is_allowed(self, node: Node, position: int, results: Any) -> bool:
        return node.op.target is None or super().is_allowed(node, position, results)

    def apply(self, op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        return self.build.apply_whole(op, args, kwargs)


class Recursive(Builder):
    """A builder that decomposes the operators that it adds."""

    def taken_apart(self, rule: Callable | None, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The results of an operator's decomposition, or None where there is none for these arguments."""
        if rule is None:
            return None
        position = len(self.graph.nodes)
        try:
            return rule(self, *args, **kwargs)
        except NoRule:
            del self.graph.nodes[position:]
            return None
        except TypeError:
            if not any(isinstance(value.type, NumberType) for value in values_in((args, tuple(kwargs.values())))):
                raise
            # It computes with a number that is unknown at compile time.
            del self.graph.nodes[position:]
            return None

    def apply(self, op: Op, args: tuple, kwargs: dict[str, Any] | None = None) -> Any:
        found = self.taken_apart(op.decompose, args, kwargs or {})
        return self.apply_whole(op, args, kwargs) if found is None else found

    def apply_whole(self, op: Op, args: tuple, kwargs: dict[str, Any] | None = None) -> Any:
        return super().apply(op, args, kwargs)
