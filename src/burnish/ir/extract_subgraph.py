"""Subgraph extraction: a new graph with copies of some nodes of another graph.

graph, env = extract_subgraph(nodes, inputs)       `inputs`: old values that become inputs
graph.outputs = [env[value]]                       `env`: maps old values to new ones
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .graph import Graph, Node, Value


def extract_subgraph(nodes: Iterable[Node], inputs: Sequence[Value]) -> tuple[Graph, dict[Value, Value]]:
    new = Graph()
    env = {value: new.copy_input(value) for value in inputs}
    for node in nodes:
        new.copy_node(node, env)
    return new, env
