"""Applies a graph's changes of torch's global state after it runs: for segments that end inside `with torch.no_grad()`.

_set_grad_enabled(False)          compiled(x)                     its computation is compiled as usual
mul = x * 2                  =>   _set_grad_enabled(False)        then all switches are set again, in order
return mul
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from ...foundation.torch_private import set_fwd_grad_enabled, set_grad_enabled
from ...tensors.torch_state import TorchState

SWITCHES = frozenset(
    (
        set_grad_enabled,
        set_fwd_grad_enabled,
        torch.set_autocast_enabled,
        torch.set_autocast_dtype,
        torch.set_autocast_cache_enabled,
        torch.autocast_increment_nesting,
        torch.autocast_decrement_nesting,
        torch.clear_autocast_cache,
    )
)
REPEATABLE = (set_grad_enabled, set_fwd_grad_enabled)
"""Switches that may be set twice: where a graph with symbolic sizes is compiled for some of them by themselves, both
programs set what it leaves."""
Calls = list[tuple[Callable[..., Any], tuple]]


def switches_left(gm: GraphModule) -> Calls:
    """The graph's calls of switches, if the graph does not undo them itself."""
    calls = [
        (node.target, tuple(node.args))
        for node in gm.graph.nodes
        if node.op == "call_function" and node.target in SWITCHES
    ]
    if not calls:
        return []
    before = TorchState.now()
    apply_switches(calls)
    after = TorchState.now()
    before.restore()
    return calls if after != before else []  # type: ignore[return-value]


def with_exit_state(compiled: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        made = compiled(*inputs)
        apply_switches(calls)
        return made

    return call


def apply_switches(calls: Calls) -> None:
    for function, args in calls:
        function(*args)
