"""Which nodes become loops, which stay library calls, and which values must lie in memory.

    x = aten.mm.default a, b       library: its result is stored
    y = aten.relu.default x        loop: computed wherever it is read
    z = aten.mm.default y, c       library: what it reads must be stored, so y is

A value computed in loops is stored if a library call reads it, if it leaves the graph, or if computing it again at each
of its readers would cost more than reading it back.
"""

from __future__ import annotations

from collections import defaultdict

from ..ir.graph import Graph, Node, Value, values_in
from ..ir.storage import is_shown
from ..ops.prims import REDUCTION_OF, VIEW
from ..ops.record import Pointwise
from ..tensors.types import NAMES
from ..tensors.views import Expand
from .expressions import rule_fails

CHEAP = 2
"""An element-wise operator of at most this cost is computed again rather than stored, if it reads one tensor."""


class Classes:
    """What `classify` found: the loop nodes, the stored values, and why other nodes are library calls."""

    def __init__(self) -> None:
        self.loops: set[Node] = set()
        self.stored: set[Value] = set()
        self.why_library: dict[Node, str] = {}
        self.readers: dict[Value, list[Node]] = defaultdict(list)

    def is_loop(self, value: Value) -> bool:
        return value.node in self.loops


def classify(graph: Graph) -> Classes:
    classes = Classes()
    for node in graph.nodes:
        for value in node.operands:
            classes.readers[value].append(node)
        why = why_not_loop(node)
        if why is None:
            classes.loops.add(node)
        elif node.op is not VIEW or not is_shown(node.results[0]):  # type: ignore[arg-type]
            classes.why_library[node] = why
    for node in graph.nodes:
        if node in classes.why_library:
            for value in node.operands:
                store(classes, value)
            classes.stored.update(value for value in node.results if value is not None)
    for value in values_in(tuple(graph.outputs)):
        store(classes, value)
    for write in graph.writes:
        store(classes, write.value)
    store_shared(graph, classes)
    return classes


def why_not_loop(node: Node) -> str | None:
    """A view is a loop only where it is stored: that is decided by who reads it."""
    if any(value is None or value.type.device.type != "cpu" for value in (*node.operands, *node.results)):
        return "it does not live on the CPU"
    if any(0 in value.shape for value in (*node.operands, *node.results) if value is not None):
        return "it has no elements"
    if node.op is VIEW:
        return None if NAMES.get(node.results[0].dtype, "c")[0] != "c" else "complex numbers"  # type: ignore[union-attr]
    if node.op.name in REDUCTION_OF:
        name = NAMES[node.args[0].dtype]
        return None if name[0] != "c" else "complex numbers"
    if isinstance(node.op.rule, Pointwise):
        return rule_fails(node)
    return f"{node.op.name} has no rule for loops"


def store(classes: Classes, value: Value) -> None:
    """A value that something outside the loops reads: it, or what it is a view of."""
    node = value.node
    while node is not None and is_shown(value):
        value = node.args[0]
        node = value.node
    classes.stored.add(value)


def store_shared(graph: Graph, classes: Classes) -> None:
    """What several would compute, or one many times over, and is dear."""
    for node in graph.nodes:
        if node not in classes.loops or not isinstance(node.op.rule, Pointwise):
            continue
        value = node.results[0]
        assert value is not None
        if value in classes.stored:
            continue
        uses, grows = uses_of(value, classes)
        if uses > 1 and not is_cheap(node) or grows and expression_cost(value, classes) > CHEAP:
            classes.stored.add(value)


def uses_of(value: Value, classes: Classes) -> tuple[int, bool]:
    """How many nodes compute with it, seen through views, and whether a view or broadcast multiplies its elements."""
    uses, grows = 0, False
    for reader in classes.readers[value]:
        if reader.op is VIEW:
            if reader.results[0] in classes.stored:
                uses += 1
                continue
            further, grew = uses_of(reader.results[0], classes)  # type: ignore[arg-type]
            uses += further
            grows |= grew or any(isinstance(step, Expand) for step in reader.args[1]) and \
                reader.results[0].type.numel > value.type.numel  # type: ignore[union-attr]
        else:
            uses += 1
            result = reader.results[0]
            if isinstance(reader.op.rule, Pointwise) and result is not None:
                grows |= result.type.numel > value.type.numel
    return uses, grows


def is_cheap(node: Node) -> bool:
    operands = {value for value in node.operands if value.ndim}
    return isinstance(node.op.rule, Pointwise) and node.op.rule.cost <= CHEAP and len(operands) <= 1


def expression_cost(value: Value, classes: Classes) -> int:
    """What one element costs, down to what is stored."""
    node = value.node
    if node is None or node not in classes.loops:
        return 0
    if node.op is VIEW:
        return 0 if node.args[0] in classes.stored else expression_cost(node.args[0], classes)
    if not isinstance(node.op.rule, Pointwise):
        return 0
    below = sum(0 if v in classes.stored else expression_cost(v, classes) for v in set(node.operands))
    return node.op.rule.cost + below
