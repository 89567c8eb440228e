"""Moves each wait for a collective down to the first use of its result, so that other work overlaps with it.

    r = all_reduce(y, "sum", group)         r = all_reduce(y, "sum", group)
    w = wait_tensor(r)                      z = x.cos() * 3
    z = x.cos() * 3                 =>      w = wait_tensor(r)
    return w + z                            return w + z

Collectives keep their order, which is the same on every rank. A wait stays above a write: the collective may still read
the tensor that is written.
"""

from __future__ import annotations

from torch.fx import Graph, Node

from ..tensors.collective_operators import is_wait


def delay_waits(graph: Graph) -> None:
    for node in list(graph.nodes):
        if not is_wait(node.target):
            continue
        last, users = node, {*node.users, *(user for given in node.all_input_nodes for user in given.users)}
        while last.next.op != "output" and last.next not in users and not may_write(last.next):
            last = last.next
        if last is not node:
            last.append(node)


def may_write(node: Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.rstrip("0123456789").endswith("_") or name in ("setitem", "__setitem__") or "out" in node.kwargs
