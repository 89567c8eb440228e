"""Long chains of element-wise operators are split into several kernels.

    x1 = sin x0                        one kernel computes x1 to x256 and stores x256,
    …                                  the next one computes x257 to x512,
    x1000 = sin x999                   …

Machine code for twice as many operators in one stretch takes more than twice as long to make, and each of them is a
step deeper in an expression. Storing a number and loading it again is little beside 256 operators on it.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import Graph, Node, Value

MOST = 256
"""Operators that a kernel computes for an element."""


def cut_chains(graph: Graph, computed: Callable[[Value], bool], store: Callable[[Value], None]) -> None:
    """`computed` says of a value that whoever reads it computes it; `store` makes an end of that."""
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
    """How many operators make a value of what lies in memory, or of what reductions give."""
    found: set[Node] = set()
    stack = [value]
    while stack:
        node = stack.pop().node
        if node is None or node in found:
            continue
        found.add(node)
        stack.extend(operand for operand in node.operands if computed(operand))
    return len(found)
