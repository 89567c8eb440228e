"""Rematerialization in a whole training step: fewer values are kept in memory from forward to backward.

    y = linear x, w, b                    y = linear x, w, b
    z = aten.gelu.default y               z = aten.gelu.default y
    l = aten.sum.default z                l = aten.sum.default z                 h is not kept from the forward pass on:
    h = aten.erf.default y         =>     h = aten.erf.default y                 it is computed again from y
    ...                                   h_1 = aten.erf.default y
    g = aten.mul.Tensor h, t              g = aten.mul.Tensor h_1, t

The graph is divided at its peak of memory use. `saved_or_recomputed` then chooses what the late nodes read of the early
ones, as it does where backward is a graph of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.alias_analysis import storage_of
from ...ir.extract_subgraph import extract_subgraph
from ...ir.graph import Graph, Node, Value
from ...ir.verify_and_publish_graph import announce
from .activation_memory_budget import choose
from .saved_or_recomputed import RecomputeChooser, late_as_can_be, with_shape_stand_in


def rematerialize(graph: Graph, constants: int, budget: float = 1.0) -> Graph:
    """The last inputs are `constants`. `budget` is the setting `memory_budget`."""
    cut = memory_peak(graph)
    early, late = graph.nodes[:cut], graph.nodes[cut:]
    given, fixed = graph.inputs[: len(graph.inputs) - constants], graph.inputs[len(graph.inputs) - constants :]
    first = set(early)
    made_for = {value for value in graph.leaving_values() if value.node in first}
    _, again, instead = choose(RecomputeChooser(graph, given, fixed, first, set(late), made_for), budget)
    if not again:
        return graph
    nodes: dict[Node, Node] = {node: node for node in graph.nodes if node in again}
    nodes |= {node: with_shape_stand_in(node, instead[node]) if node in instead else node for node in late}
    # From here on, the results of a node that is repeated replace those of the first run.
    new, env = extract_subgraph([*early, *late_as_can_be(graph, late, nodes)], graph.inputs)
    new.copy_ends(graph, env)
    announce("rematerialize", new, graph)
    return new


def memory_peak(graph: Graph) -> int:
    """The number of nodes before the point where most memory is in use by values that have later readers."""
    change = [0] * (len(graph.nodes) + 1)
    for value, (first, last) in reaches(graph.nodes).items():
        change[first] += value.type.bytes
        change[last] -= value.type.bytes
    most = now = at = 0
    for number, step in enumerate(change):
        now += step
        if now > most:
            most, at = now, number + 1
    return at


def reaches(nodes: Sequence[Node]) -> dict[Value, tuple[int, int]]:
    """The live range of each storage: the node that produces it and the last node that reads it."""
    found: dict[Value, tuple[int, int]] = {}
    for number, node in enumerate(nodes):
        for value in node.operands:
            root = storage_of(value)
            if root in found:
                found[root] = found[root][0], number
        for value in node.results:
            if value is not None and storage_of(value) is value:
                found[value] = number, number
    return found
