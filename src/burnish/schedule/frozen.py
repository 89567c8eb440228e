"""What follows from a module's state alone goes into a graph of its own, the prologue, which runs once.

    p = prepare 'onednn packed', w, b       prologue(w, b): p
    y = run 'onednn packed', x, p           main(x, w, b, p): y

The prologue's outputs are the main graph's last inputs. They hold as long as the state has not changed.
"""

from __future__ import annotations

from ..ir.graph import Alias, Graph, Node, Value, Write, replaced, values_in
from ..ir.part import part
from ..ir.state import state_values
from ..ir.storage import source_of


def split_frozen(graph: Graph) -> tuple[Graph, Graph] | None:
    """Prologue and main graph, or None where there is nothing to do once."""
    state = state_values(graph) - leaving(graph)
    moved: list[Node] = []
    inside: set[Value] = set()
    for node in graph.nodes:
        if node.results and all(v is None or v in state for v in node.results) \
                and all(v.node is None or v in inside for v in node.operands):
            moved.append(node)
            inside.update(v for v in node.results if v is not None)
    if not moved:
        return None
    gone = set(moved)
    rest = [node for node in graph.nodes if node not in gone]
    used = dict.fromkeys(value for node in rest for value in node.operands if value in inside)
    prologue, env = part(moved, graph.inputs)
    prologue.outputs = [env[value] for value in used]
    main, env = part(rest, [*graph.inputs, *used])
    main.outputs = [out if isinstance(out, Alias) else replaced(out, env.__getitem__) for out in graph.outputs]
    main.writes = [Write(write.input, env[write.value]) for write in graph.writes]
    return prologue, main


def leaving(graph: Graph) -> set[Value]:
    """What a caller gets hold of: he may change it, so it is made anew for him."""
    found: set[Value] = set()
    for value in (*values_in(tuple(graph.outputs)), *(write.value for write in graph.writes)):
        while value is not None and value not in found:
            found.add(value)
            value = source_of(value)
    return found
