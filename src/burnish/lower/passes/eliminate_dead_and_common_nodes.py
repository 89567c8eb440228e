"""Dead code elimination and common subexpression elimination; also merges chains of views.

a = aten.exp.default x                =>    a = aten.exp.default x
b = aten.exp.default x                      c = aten.add.Tensor a, a
c = aten.add.Tensor a, b
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir import fuel
from ...ir.error_check_nodes import is_kept
from ...ir.frozen_values import is_random
from ...ir.graph import Graph, Value, map_values
from ...ir.graph_builder import Builder
from ...ops.burnish_primitives import VIEW
from ...tensors.views.simplify_views import simplified


def eliminate_dead_and_common_nodes(graph: Graph) -> Graph:
    wanted = needed_nodes(graph)
    new = Graph()
    build = Builder(new)
    env: dict[Value, Value] = {value: new.copy_input(value) for value in graph.inputs}
    known: dict[Any, tuple] = {}
    for node in graph.nodes:
        if id(node) not in wanted:
            continue
        args = map_values(node.args, env.__getitem__)
        kwargs = {k: map_values(v, env.__getitem__) for k, v in node.kwargs.items()} if node.kwargs else {}
        build.line = node.line
        if node.op is VIEW:
            results = (joined_view(build, known, args[0], args[1], node.results[0]),)
        else:
            key = (
                None
                if is_random(node)
                else (node.op.name, frozen(args), frozen(tuple(kwargs.items())) if kwargs else ())
            )
            results = known.get(key) if key is not None else None
            if results is not None and not fuel.allows("eliminate_common_nodes", node, *results[:1]):
                results = None
            if results is None:
                results = build.apply_typed(node.op, args, kwargs, tuple([v and v.type for v in node.results]))
                new.nodes[-1].eager_strides = node.eager_strides
                if key is not None:
                    known[key] = results
        for old, made in zip(node.results, results, strict=True):
            if old is not None:
                env[old] = made  # type: ignore[assignment]
    new.copy_ends(graph, env)
    return new


def joined_view(build: Builder, known: dict, source: Value, maps: tuple, old: Value) -> Value:
    """Merges a view of a view into one view of the first source, where that has the same strides."""
    while source.node is not None and source.node.op is VIEW:
        further, chain = source.node.args
        joined = simplified((*chain, *maps), further.shape)
        if joined and VIEW.shape(further.type, joined) != old.type:  # type: ignore[misc]
            break
        source, maps = further, joined
    maps = simplified(maps, source.shape)
    if not maps and source.type == old.type:
        return source
    key = ("view", source, maps, old.type)
    found = known.get(key)
    if found is None:
        found = known[key] = build.apply_typed(VIEW, (source, maps), {}, (old.type,))
    return found[0]


def needed_nodes(graph: Graph) -> set[int]:
    """The nodes that outputs and writes depend on, that draw random numbers in order, or that may raise."""
    needed: set[int] = set()
    stack = [value.node for value in graph.leaving_values()]
    stack += [node for node in graph.nodes if is_kept(node)]
    while stack:
        node = stack.pop()
        if node is None or id(node) in needed:
            continue
        needed.add(id(node))
        stack.extend(value.node for value in node.operands)
    return needed


def frozen(tree: Any) -> Any:
    """A key for arguments: lists become tuples; 1, 1.0 and True are distinct, and so are 0.0 and -0.0."""
    kind = type(tree)
    if kind is Value or kind is str:
        return tree
    if kind in EXACT:
        return kind, tree
    if isinstance(tree, (tuple, list)):
        return tuple([frozen(part) for part in tree])
    return kind, repr(tree)


EXACT = frozenset((int, bool, type(None), torch.dtype))
"""Types whose equal values are interchangeable."""
