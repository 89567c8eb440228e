"""Splits long chains of element-wise operators into several kernels, to bound compile time and expression depth.

    x1 = sin x0                        one kernel computes x1 to x256 and stores x256,
    …                                  the next one computes x257 to x512,
    x1000 = sin x999                   …

Compile time grows faster than the number of operators in one kernel, and each operator makes the expression deeper.
Storing a value and loading it again costs little compared with 256 operators.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import Graph, Node, Value

MOST = 256
"""Most operators that a kernel computes for one element."""


def cut_chains(graph: Graph, computed: Callable[[Value], bool], store: Callable[[Value], None]) -> None:
    """`computed` tells whether each reader computes a value itself; `store` stores the value in memory instead."""
    behind: dict[Value, frozenset[Node]] = {}
    for node in graph.nodes:
        value = node.results[0] if node.results else None
        if value is None or not computed(value):
            continue
        parts = {operand: behind[operand] for operand in node.operands if operand in behind}
        found = frozenset((node,)).union(*parts.values())
        while len(found) > MOST and parts:
            longest = max(parts, key=lambda operand: len(parts[operand]))
            store(longest)
            del parts[longest]
            found = frozenset((node,)).union(*parts.values())
        behind[value] = found


def operators_of(value: Value, computed: Callable[[Value], bool]) -> int:
    """The number of operators that compute a value from memory or from results of reductions."""
    found: set[Node] = set()
    stack = [value]
    while stack:
        node = stack.pop().node
        if node is None or node in found:
            continue
        found.add(node)
        stack.extend(operand for operand in node.operands if computed(operand))
    return len(found)
