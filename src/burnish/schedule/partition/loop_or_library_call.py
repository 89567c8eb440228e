"""Classifies nodes as loops or library calls, and chooses which values are stored in memory.

    x = aten.mm.default a, b       library: its result is stored
    y = aten.relu.default x        loop: computed wherever it is read
    z = aten.mm.default y, c       library: its operands must be stored, so y is

The value of a loop is stored if a library call reads it, if it is an output, or if recomputing it in each reader would
cost more than a read from memory (the cost model counts its operations).
"""

from __future__ import annotations

from collections import defaultdict

import torch

from ...ir import fuel
from ...ir.alias_analysis import is_memory_view
from ...ir.graph import Graph, Node, Value, values_in
from ...ops.burnish_primitives import ADD_AT, ASSEMBLED, CONVERT, FETCH, REDUCTION_OF, RUN_ALONG, VIEW
from ...ops.operator_record import NoRule, Pointwise
from ...ops.shapes.concat_lowering import ConcatRule, OperandPart, leaves
from ...ops.shapes.element_from_index_rules import IndexFunction
from ...ops.target_record import target_of
from ...settings import current
from ...tensors.dtypes import has_loops
from ...tensors.tensor_types import NumberType
from ...tensors.views.view_maps import Expand
from ..fusion.fusion_groups import is_contiguous_scan, is_reduction, is_running
from ..fusion.split_concat_loops import MOST
from ..fusion.split_long_chains import cut_chains
from ..loops.build_expressions import index_function_fails, rule_fails, why_not_dtypes

CHEAP = 2
"""An element-wise operator of at most this cost is recomputed instead of stored, if it reads one tensor and otherwise
only values that are `SMALL` times smaller: a bias, the mean of a channel."""

SMALL = 16

HOISTED = 64
"""Highest cost of a number of a row that each kernel computes for itself: less than the start of another kernel."""


class Classes:
    """The result of `classify_nodes`: the loop nodes, the stored values, and why other nodes are library calls."""

    def __init__(self) -> None:
        self.loops: set[Node] = set()
        self.stored: set[Value] = set()
        self.why_library: dict[Node, str] = {}
        self.readers: dict[Value, list[Node]] = defaultdict(list)

    def is_loop(self, value: Value) -> bool:
        return value.node in self.loops


def classify_nodes(graph: Graph, is_symbolic: bool = False) -> Classes:
    """`is_symbolic`: sizes are symbolic. Then kernels copy what grows with every call, two caches in one kernel: the
    native functions before and after it are joined, without Python in between."""
    classes = Classes()
    for node in graph.nodes:
        for value in node.operands:
            classes.readers[value].append(node)
        why = why_not_loop(node) or why_not_allowed(node)
        if why is None:
            classes.loops.add(node)
        elif node.op is not VIEW or not is_memory_view(node.results[0]):  # type: ignore[arg-type]
            classes.why_library[node] = why
    for node in graph.nodes:
        if node in classes.why_library:
            for value in node.operands:
                store(classes, value)
            classes.stored.update(value for value in node.results if value is not None)
        elif node.op is FETCH or node.op is ADD_AT:
            store(classes, node.args[0])
    for value in values_in(tuple(graph.outputs)):
        store(classes, value)
    for write in graph.writes:
        store(classes, write.value)
    # First: the steps below walk the whole expression of a value.
    cut_chains(graph, lambda value: is_computed(value, classes), lambda value: store(classes, value))
    store_shared(graph, classes, is_symbolic)
    store_before_running(graph, classes)
    store_without_fuel(graph, classes)
    for node in graph.nodes:
        if not is_symbolic and node in classes.loops and is_mere_copy(node, classes):
            classes.loops.discard(node)
            classes.why_library[node] = "it only fills memory, which the library does as fast"
    return classes


def is_mere_copy(node: Node, classes: Classes) -> bool:
    """Whether it only concatenates parts that are in memory, without computing them. Or it only fills memory; a fill
    "like" a tensor without other readers is better done without that tensor."""
    if isinstance(node.op.rule, IndexFunction) and not any(node.operands) and node.results[0] in classes.stored:
        return True
    if not isinstance(node.op.rule, ConcatRule) or node.op.rule.is_slow or node.results[0] not in classes.stored:
        return False
    return not is_cheap(node) and all(lies_in_memory(value, classes) for value in node.operands)


def is_computed(value: Value, classes: Classes) -> bool:
    """Whether each reader computes the value: it is made in loops, is not stored, and is not a reduction."""
    return classes.is_loop(value) and value not in classes.stored and not is_reduction(value) and not is_running(value)


def lies_in_memory(value: Value, classes: Classes) -> bool:
    while is_memory_view(value) and value not in classes.stored:
        value = value.node.args[0]  # type: ignore[union-attr]
    return value in classes.stored or not classes.is_loop(value)


def why_not_loop(node: Node, most: int | None = MOST) -> str | None:
    """None for views too: their readers decide whether one is stored, by a loop. At most `most` parts may be
    concatenated."""
    types = [value and value.type for value in (*node.operands, *node.results)]
    devices = {type and type.device for type in types if not isinstance(type, NumberType)}
    device = devices.pop() if len(devices) == 1 else None
    if device is None:
        return "it is on several devices, or on none"
    target = target_of(device)
    if target is None:
        return f"no target makes kernels for {device}"
    if any([type is not None and 0 in type.shape for type in types]):
        return "it has no elements"
    if node.op is VIEW:
        return None if has_loops(node.results[0].dtype) else "no numbers of the scalar IR"  # type: ignore[union-attr]
    if node.op.name in REDUCTION_OF:
        return None if has_loops(node.args[0].dtype) else "no numbers of the scalar IR"
    if node.op.name in RUN_ALONG:
        is_number = has_loops(node.args[0].dtype) and node.args[0].dtype is not torch.bool
        return None if node.args[0].ndim and is_number else "it has no dimension, or no real numbers"
    if node.op is FETCH or node.op is ADD_AT:
        return None
    if isinstance(node.op.rule, Pointwise):
        return rule_fails(node, target.why_not_printed)
    if isinstance(node.op.rule, ConcatRule):
        return why_not_joined(node, most)
    if isinstance(node.op.rule, IndexFunction):
        return index_function_fails(node, target.why_not_printed)
    return f"{node.op.name} has no rule for loops"


def why_not_allowed(node: Node) -> str | None:
    """Where torch has a kernel for a node, a loop in its place costs fuel. That kernel cannot read assembled values:
    they have other strides than in eager."""
    has_kernel = node.op.target is not None and all(v.node is None or v.node.op is not ASSEMBLED for v in node.operands)
    return "there is no fuel for a loop" if has_kernel and not fuel.allows("classify_nodes", node, "a loop") else None


def why_not_joined(node: Node, most: int | None) -> str | None:
    try:
        count = sum(1 for _ in leaves(node.op.rule.rule(*node.args, **node.kwargs)))  # type: ignore[union-attr]
    except NoRule as error:
        return f"{node.op.name}: {error}"
    if most is not None and count > most:
        return f"{node.op.name} of {count} parts"
    return why_not_dtypes(node)


def store(classes: Classes, value: Value) -> None:
    """Stores a value that is read outside the loops: the value itself, or the base of a view."""
    node = value.node
    while node is not None and is_memory_view(value):
        value = node.args[0]
        node = value.node
    classes.stored.add(value)


def store_shared(graph: Graph, classes: Classes, is_symbolic: bool) -> None:
    """Stores values that are expensive and would be computed by several readers, or several times by one."""
    for node in graph.nodes:
        if node not in classes.loops or not isinstance(node.op.rule, (Pointwise, ConcatRule)) and node.op is not FETCH:
            continue
        value = node.results[0]
        assert value is not None
        if value in classes.stored:
            continue
        uses, grows = uses_of(value, classes)
        if is_widened(value):
            continue  # readers may convert the narrow value, which is stored if that pays
        # With symbolic sizes the choice must not depend on relative sizes: each size could get other steps.
        if not is_symbolic and grows and is_hoisted(value, classes):
            continue
        is_again_cheap = is_cheap(node) if is_symbolic else is_cheap_again(value, classes)
        if uses > 1 and not is_again_cheap or grows and expression_cost(value, classes) > CHEAP:
            classes.stored.add(value)


def store_before_running(graph: Graph, classes: Classes) -> None:
    """Stores an expensive operand of a scan along rows: otherwise it is computed one element at a time."""
    for node in graph.nodes:
        if node not in classes.loops or node.op.name not in RUN_ALONG or not is_contiguous_scan(node.results[0]):  # type: ignore
            continue
        value = node.args[0]
        while value.node is not None and value.node.op is CONVERT and value not in classes.stored:
            value = value.node.args[0]
        if classes.is_loop(value) and expression_cost(value, classes) > CHEAP:
            store(classes, value)


def store_without_fuel(graph: Graph, classes: Classes) -> None:
    """What readers would compute, where there is no fuel for it."""
    for node in graph.nodes if current().fuel is not None else ():
        value = node.results[0] if node.results and node.op is not VIEW else None
        is_inside = value is not None and is_computed(value, classes)
        if is_inside and not fuel.allows("fuse_loops", node, "it is computed where it is read"):
            store(classes, value)


def uses_of(value: Value, classes: Classes) -> tuple[int, bool]:
    """The number of nodes that compute with it, through views and concatenations, and whether a view or broadcast
    repeats its elements."""
    uses, grows = 0, False
    for reader in classes.readers[value]:
        if (
            reader.op is VIEW
            or (isinstance(reader.op.rule, ConcatRule) or is_widened(reader.results[0]))
            and reader in classes.loops
        ):
            if reader.results[0] in classes.stored:
                uses += 1
                continue
            further, grew = uses_of(reader.results[0], classes)  # type: ignore[arg-type]
            uses += further
            grows |= (
                grew
                or reader.op is VIEW
                and any(isinstance(step, Expand) for step in reader.args[1])
                and reader.results[0].type.numel > value.type.numel
            )  # type: ignore[union-attr]
        else:
            uses += 1
            result = reader.results[0]
            if isinstance(reader.op.rule, Pointwise) and result is not None:
                grows |= result.type.numel > value.type.numel
    return uses, grows


def is_hoisted(value: Value, classes: Classes) -> bool:
    """Whether it is a number, or a number of each row, whose readers compute it once for a row's elements."""
    target = target_of(value.type.device)
    return (
        target is not None
        and target.hoists_rows
        and expression_cost(value, classes) <= HOISTED
        and all(is_of_row(value, reader, classes) for reader in classes.readers[value])
    )


def is_of_row(value: Value, reader: Node, classes: Classes) -> bool:
    """Whether the reader has as many elements as the value, or repeats them along its last dimension."""
    result = reader.results[0]
    if result is None or reader not in classes.loops:
        return False
    if reader.op is VIEW:
        if result.type.numel > value.type.numel and value.type.numel > 1 and result.type.stride[-1] != 0:
            return False
        return all(is_of_row(result, further, classes) for further in classes.readers[result])
    if not isinstance(reader.op.rule, Pointwise):
        return False
    if result.type.numel == value.type.numel and value.type.stride[-1:] != (0,):
        return True
    is_number = value.type.numel == 1 or value.type.stride[-1:] == (0,) or value.shape[-1] == 1
    return is_number and value.ndim in (0, result.ndim) and result.shape[-1:] != (1,)


def is_widened(value: Value | None) -> bool:
    """Whether it converts another value to a wider type: half precision to float32, say."""
    node = value.node if value is not None else None
    return node is not None and node.op is CONVERT and node.args[0].type.bytes < value.type.bytes  # type: ignore


def is_cheap_again(value: Value, classes: Classes) -> bool:
    """Whether each reader may compute it, down to the values in memory."""
    while is_computed(value, classes):
        node = value.node
        assert node is not None
        if node.op is VIEW or is_widened(value):
            value = node.args[0]
            continue
        if not is_cheap(node):
            return False
        operands = [operand for operand in node.operands if is_computed(operand, classes)]
        if not operands:
            return True
        value = max(operands, key=lambda operand: operand.type.numel)
    return True


def is_cheap(node: Node) -> bool:
    least = max((value.type.numel for value in node.results if value is not None), default=0) / SMALL
    operands = {value for value in node.operands if value.ndim and value.type.numel > least}
    if isinstance(node.op.rule, ConcatRule):
        # A copy, such as padding by nothing: readers may as well read the source.
        return isinstance(node.op.rule.rule(*node.args, **node.kwargs), OperandPart)
    return isinstance(node.op.rule, Pointwise) and node.op.rule.cost <= CHEAP and len(operands) <= 1


def expression_cost(value: Value, classes: Classes) -> int:
    """The cost model of recomputation: what one element costs, down to the stored values."""
    node = value.node
    if node is None or node not in classes.loops:
        return 0
    if node.op is VIEW:
        return 0 if node.args[0] in classes.stored else expression_cost(node.args[0], classes)
    if isinstance(node.op.rule, ConcatRule):
        return max((0 if v in classes.stored else expression_cost(v, classes) for v in node.operands), default=0)
    if not isinstance(node.op.rule, Pointwise):
        return 0
    below = sum(0 if v in classes.stored else expression_cost(v, classes) for v in set(node.operands))
    return node.op.rule.cost + below
