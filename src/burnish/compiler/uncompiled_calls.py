"""Which calls of a graph run as they are, while the parts of the graph between them are compiled.

    handle = y.register_hook(f)      a change of a tensor object (``runtime.eager.tensor_object_change_nodes``)
    ctc_loss(x, ...)                 could not be traced: as few such calls as leave enough to compile
    embedding(i, w, sparse=True)     takes, returns or has as its gradient a tensor without strides
    other_library.write_(x)          an operator of another library that writes to its arguments

Before a graph is traced, rules mark its nodes (``ALONE``); after a failed trace, more of them may. ``stands_alone``
reads the marks for ``partition_uncompiled_calls``.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..captured_graph.checkpoint_hooks import MARK
from ..captured_graph.compile_request import UNSTRIDED, request_of
from ..concurrency.first_value_cache import once
from ..foundation.torch_private import OPDEFS, OpOverload, OpOverloadPacket
from ..runtime.eager.tensor_object_change_nodes import set_data_
from ..tensors.collective_operators import is_collective_operator


def stands_alone(node: Node) -> bool:
    """Whether a node runs as it is, between compiled parts. This includes nodes that make a leaf: differentiating a
    graph checks which of its inputs need gradients."""
    return (
        ALONE in node.meta
        or getattr(node.target, "stands_alone", False) is True
        or is_leaf_seen_outside(node)
        or node.target is torch.nn.Parameter
        or node.kwargs.get("requires_grad") is True
        or isinstance(node.target, OPERATORS)
        and (is_collective_operator(node.target) or is_foreign_and_writes(node.target))
    )


ALONE = "burnish_stands_alone"
"""The mark of a node that a compiler could not trace after all."""


def is_leaf_seen_outside(node: Node) -> bool:
    """Whether it is ``x.requires_grad_(flag)`` for a tensor that the caller holds or gets. Other leaves exist in the
    graph only, and a trace makes them."""
    if node.target != "requires_grad_":
        return False
    x = node.args[0]
    return (
        node.args[1] is False
        or x.op == "placeholder"  # type: ignore[union-attr]
        or any(user.op == "output" for user in (*node.users, *x.users))  # type: ignore[union-attr]
    )


def let_leaves_stand_alone(gm: GraphModule) -> None:
    """For a graph whose inputs require no gradients. Its results may require some because of a leaf that it makes, and
    only autograd knows."""
    for node in gm.graph.nodes:
        if node.target == "requires_grad_":
            node.meta[ALONE] = True


def let_functions_stand_alone(gm: GraphModule) -> bool:
    """For a graph that could not be traced: custom autograd functions run as they are, and so do operators with a
    formula in Python, which may look at data. Returns whether it has any that did not."""
    found = [node for node in gm.graph.nodes if is_differentiated_in_python(node.target) and not stands_alone(node)]
    for node in found:
        node.meta[ALONE] = True
    return bool(found)


MOST_ALONE = 4
"""How many calls of a graph may run as they are because they could not be traced. Each kind takes a trace to find."""


def let_call_stand_alone(gm: GraphModule, position: int | None) -> bool:
    """For a graph that could not be traced because of the call at this position: all calls of the same function run as
    they are. Returns whether that leaves enough to compile."""
    request, nodes = request_of(gm), list(gm.graph.nodes)
    if position is None or not can_be_cut(gm):
        return False
    same = [node for node in nodes if node.target == nodes[position].target]
    parts = {operator.getitem, same[0].target}
    rest = [node for node in nodes if node.op not in ("placeholder", "output") and node.target not in parts]
    if request.calls_alone + len(same) > MOST_ALONE or len(rest) < 3 * len(same):
        return False
    request.calls_alone += len(same)
    for node in same:
        node.meta[ALONE] = True
    return True


def can_be_cut(gm: GraphModule) -> bool:
    """Parts of a graph do not know what happens to its inputs and results afterwards, nor that ``x.data`` has its own
    version counter."""
    request = request_of(gm)
    return not (request.overwritten_inputs or request.outputs_are_inference) and not any(
        getattr(node.target, "torch_attribute", None) == "data" or node.target is set_data_ for node in gm.graph.nodes
    )


def let_unstrided_stand_alone(gm: GraphModule, has_gradients: bool) -> bool:
    """Calls that take or return sparse tensors and the like, or have such gradients, run as they are if that leaves
    enough to compile. Returns whether there are any."""
    nodes = [node for node in gm.graph.nodes if node.op not in ("placeholder", "output")]
    found = [
        node
        for node in nodes
        if any(UNSTRIDED in each.meta for each in (node, *node.all_input_nodes))
        or has_gradients
        and any(node.kwargs.get(name) is True for name in ("sparse", "sparse_grad"))
    ]
    if not found or len(nodes) < 3 * len(found) or not can_be_cut(gm) or any(MARK in node.meta for node in nodes):
        return False
    for node in found:
        node.meta[ALONE] = True
    return True


def is_differentiated_in_python(target: Any) -> bool:
    if not isinstance(target, OPERATORS):
        return hasattr(target, "why_not_traceable")
    family = target if isinstance(target, OpOverloadPacket) else target._overloadpacket
    definition = OPDEFS.get(family._qualified_op_name)
    return definition is not None and definition._backward_fn is not None


def why_native(gm: GraphModule) -> list[str]:
    """Why compilers do not trace the custom autograd functions of a graph."""
    reasons = [(node.target, getattr(node.target, "why_not_traceable", None)) for node in gm.graph.nodes]
    return [f"{target.__name__}: {why}" for target, why in reasons if why]  # type: ignore[union-attr]


OPERATORS = (OpOverload, OpOverloadPacket)


@once
def is_foreign_and_writes(operator: Any) -> bool:
    """Operators of other libraries that write to arguments: they have no functional variants."""
    family = operator if isinstance(operator, OpOverloadPacket) else operator._overloadpacket
    if family._qualified_op_name.partition("::")[0] in ("aten", "prims") or is_collective_operator(family):
        return False
    overloads = [getattr(family, name) for name in family.overloads()] if operator is family else [operator]
    return any(overload._schema.is_mutable for overload in overloads)
