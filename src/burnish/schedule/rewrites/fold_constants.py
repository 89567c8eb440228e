"""Constant folding: moves work that depends only on weights and constants to a graph of its own, the prologue.

    p = prepare 'onednn packed', w, b       prologue(w, b): p
    y = run 'onednn packed', x, p           main(x, w, b, p): y

The prologue's outputs are the main graph's last inputs. They are valid until the state changes.

A constant or a range that loops compute from the index is not moved: it needs no memory.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import fuel
from ...ir.alias_analysis import alias_base
from ...ir.extract_subgraph import extract_subgraph
from ...ir.frozen_values import state_values
from ...ir.graph import Graph, Node, Value
from ...ir.verify_and_publish_graph import announce
from ...ops.burnish_primitives import RUN, VIEW
from ...ops.operator_record import Pointwise
from ...ops.shapes.element_from_index_rules import IndexFunction
from ..library.call_specs import QuantizedSpec
from ..partition.loop_or_library_call import why_not_loop


def fold_constants(graph: Graph, is_same: Callable[[Node], bool] = lambda node: True) -> tuple[Graph, Graph] | None:
    """Prologue and main graph, or None if there is nothing to fold. `is_same`: whether a node is the same for all
    sizes."""
    state = state_values(graph) - leaving(graph)
    moved: list[Node] = []
    inside: set[Value] = set()
    for node in graph.nodes:
        if (
            node.results
            and is_same(node)
            and not is_dequantization(node)
            and all(v is None or v in state for v in node.results)
            and all(v.node is None or v in inside for v in node.operands)
            and fuel.allows("fold_constants", node, "it runs once")
        ):
            moved.append(node)
            inside.update(v for v in node.results if v is not None)
    stay = written_out(graph, moved)
    needed = {value for node in moved if node not in stay for value in node.operands}
    for node in reversed(moved):
        if node in stay and not needed.isdisjoint(node.results):
            needed.update(node.operands)
    gone = set(moved) - stay
    moved = [node for node in moved if node in gone or not needed.isdisjoint(node.results)]
    inside = {v for node in gone for v in node.results if v is not None}
    if not gone:
        return None
    rest = [node for node in graph.nodes if node not in gone]
    used = dict.fromkeys(value for node in rest for value in node.operands if value in inside)
    prologue, env = extract_subgraph(moved, graph.inputs)
    prologue.outputs = [env[value] for value in used]
    main, env = extract_subgraph(rest, [*graph.inputs, *used])
    main.copy_ends(graph, env)
    announce("split_frozen prologue", prologue)
    announce("split_frozen main", main)
    return prologue, main


def is_dequantization(node: Node) -> bool:
    """Whether it makes floats of a quantized weight: kept, they would take the memory that quantizing it saved."""
    return node.op is RUN and isinstance(node.args[0].spec, QuantizedSpec)


def written_out(graph: Graph, moved: list[Node]) -> set[Node]:
    """Nodes without operands, and views of them, that only loops read: loops compute their elements inline."""
    found: set[Node] = set()
    for node in moved:
        if node.op is VIEW:
            is_made = node.args[0].node in found
        else:
            is_made = isinstance(node.op.rule, IndexFunction) and not node.op.rule.reads and not any(node.operands)
        if is_made and why_not_loop(node) is None:
            found.add(node)
    if not found:
        return found
    inside = set(moved)
    # From the last reader up: operands of library calls must be in memory, and so must the bases of their views.
    for node in reversed(graph.nodes):
        writes_out = (
            node in found or node not in inside and isinstance(node.op.rule, Pointwise) and why_not_loop(node) is None
        )
        if not writes_out and (node not in inside or node in found):
            found.difference_update(value.node for value in node.operands if value.node is not None)
    return found


def leaving(graph: Graph) -> set[Value]:
    """Values that the caller receives. The caller may modify them, so each call makes them again."""
    found: set[Value] = set()
    for value in graph.leaving_values():
        while value is not None and value not in found:
            found.add(value)
            value = alias_base(value)
    return found
