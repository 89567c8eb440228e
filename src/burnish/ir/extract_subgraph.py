"""Subgraph extraction: a new graph with copies of some nodes of another graph.

graph, env = extract_subgraph(nodes, inputs)       `inputs`: old values that become inputs
graph.outputs = [env[value]]                       `env`: maps old values to new ones
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .graph import Graph, Node, Value, map_values


def extract_subgraph(nodes: Iterable[Node], inputs: Sequence[Value]) -> tuple[Graph, dict[Value, Value]]:
    new = Graph()
    env = {value: new.copy_input(value) for value in inputs}
    for node in nodes:
        made = new.add(
            node.op,
            map_values(node.args, env.__getitem__),
            {k: map_values(v, env.__getitem__) for k, v in node.kwargs.items()},
            tuple(v and v.type for v in node.results),
            node.line,
        )
        new.nodes[-1].eager_strides = node.eager_strides
        env.update((old, value) for old, value in zip(node.results, made, strict=True) if old is not None)
    return new, env
