"""A backend like a user's own: it takes a graph of operators, and runs no Python of a program."""

import torch


def operators(gm, example_inputs):
    """Run the graph as it is, if all its nodes are functions of torch."""
    others = [node.target for node in gm.graph.nodes if node.op == "call_function" and not is_operator(node.target)]
    assert not others, others
    return gm.forward


def is_operator(target):
    return isinstance(target, (torch._ops.OperatorBase, torch._ops.OpOverloadPacket)) or (
        (getattr(target, "__module__", None) or "").partition(".")[0] in ("None", "", "torch", "_operator", "math")
        and "burnish" not in type(target).__module__
    )
