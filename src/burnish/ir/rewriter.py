"""Graph rewriter: the base class of passes that copy a graph node by node and replace single nodes.

class Halve(Rewriter):
    def rewrite(self, node, args, kwargs):      `args`, `kwargs`: the node's arguments in the new graph
        if node.op.name == "aten.mul.Tensor" ...:
            return self.build(...)              the value, or values, that replace its results
        return None                             the node is copied
"""

from __future__ import annotations

from typing import Any

from ..ops.burnish_primitives import VIEW
from ..ops.layouts_eager_accepts import eager_stride_or_none
from ..ops.operator_record import Op
from . import fuel
from .alias_analysis import alias_base, aliased_argument
from .graph import Graph, Node, Value, map_values, values_in
from .graph_builder import Builder


class Rewriter:
    optional: str | None = None
    """The name of a pass that the graph is right without: each of its rewrites costs fuel, see `burnish.ir.fuel`."""

    def __init__(self, graph: Graph):
        self.old, self.new = graph, Graph()
        self.build = Builder(self.new)
        self.env: dict[Value, Any] = {}
        self.restored: set[Value] = set()
        """Old values whose strides differed in the new graph and were restored with a copy."""

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def run(self) -> Graph:
        for value in self.old.inputs:
            self.env[value] = self.new.copy_input(value)
        self.begin()
        for node in self.old.nodes:
            self.build.line = node.line
            args = map_values(node.args, self.env.__getitem__)
            kwargs = {k: map_values(v, self.env.__getitem__) for k, v in node.kwargs.items()} if node.kwargs else {}
            position = len(self.new.nodes)
            results = self.rewrite(node, args, kwargs)
            if results is not None and not self.is_allowed(node, position, results):
                del self.new.nodes[position:]
                results = None
            if results is None:
                results = self.copy_node(node, args, kwargs)
            elif isinstance(results, Value):
                results = (results,)
            for old, made in zip(node.results, results, strict=True):
                if old is not None:
                    self.env[old] = made
        self.finish()
        return self.new

    def is_allowed(self, node: Node, position: int, results: Any) -> bool:
        """Whether there is fuel for a rewrite, which added the new graph's nodes from `position` on."""
        return self.optional is None or fuel.allows(self.optional, node, self.new.nodes[position:] or results)

    def begin(self) -> None:
        """Hook: runs before the first node."""

    def copy_node(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> tuple:
        """Copy the node. If its operands have other strides now, its results may too. If its kernel accepts only
        eager's layout, the operands are restored."""
        if node.eager_strides is not None:
            shown = aliased_argument(node)
            if shown is not None:
                # Keep result and argument aliased.
                self.restore(shown)
                args = map_values(node.args, self.env.__getitem__)
            args, kwargs = self.with_eager_strides(node, args, kwargs)
        results = self.made_again(node, args, kwargs)
        self.new.nodes[-1].eager_strides = node.eager_strides
        return results

    def with_eager_strides(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments, with each value copied to its eager strides if needed."""
        strides = iter(node.eager_strides or ())

        def laid(value: Value) -> Value:
            stride = eager_stride_or_none(value.type, next(strides))
            return value if stride is None else self.build.restride(value, stride)

        return map_values(args, laid), {name: map_values(arg, laid) for name, arg in kwargs.items()}

    def made_again(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> tuple:
        operands = values_in((args, tuple(kwargs.values())) if kwargs else args)
        for value, made in zip(node.operands, operands, strict=True):
            type = made.type
            if type is not value.type and type != value.type:
                break
        else:
            return self.build.apply_typed(node.op, args, kwargs, tuple([v and v.type for v in node.results]))
        made = self.apply(node.op, args, kwargs)
        return (made,) if isinstance(made, Value) else made

    def apply(self, op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        return self.build.apply(op, args, kwargs)

    def restore(self, old: Value) -> None:
        """Restore the old strides of a value, and of its base first, so that both still share memory."""
        if old in self.restored:
            return
        made, source = self.env[old], alias_base(old)
        if source is not None:
            self.restore(source)
            if source in self.restored and old.node is not None and old.node.op is VIEW:
                self.env[old] = self.build.apply_typed(VIEW, (self.env[source], old.node.args[1]), {}, (old.type,))[0]
                self.restored.add(old)
                return
        if made.type.stride != old.type.stride:
            self.env[old] = self.build.restride(made, old.type.stride)
            self.restored.add(old)

    def finish(self) -> None:
        """Set outputs and writes; outputs get their eager strides."""
        for old in dict.fromkeys(value for value in values_in(tuple(self.old.outputs))):
            self.restore(old)
        self.new.copy_ends(self.old, self.env)
