"""Keeps graphs from AOTAutograd in which rules of a tensor subclass run.

    class Counted(torch.Tensor): ...         its __torch_function__ counts its calls
    counted * 2                              the graph calls it; what AOTAutograd traces would not

Capture has interpreted most rules, so that few graphs are left to their classes.
"""

from __future__ import annotations

from torch.fx import GraphModule

from .. import events
from ..captured_graph.compile_request import request_of


def is_left_to_rules(gm: GraphModule) -> bool:
    """Whether the graph runs as it is, because a tensor's class has rules that capture could not follow."""
    request = request_of(gm)
    if request.has_functions_of_users:
        events.emit("lower.refused", text=f"runs eagerly: {request.native_rules}", graph_module=gm, fallback="refused")
    return request.has_functions_of_users
