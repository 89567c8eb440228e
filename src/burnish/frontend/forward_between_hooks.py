"""Hooks that communicate with other processes run as they are, and a module's ``forward`` runs compiled between them.

    block = fully_shard(burnish.compile(block, fullgraph=True))
    block(x)        gather the parameters   a hook, as in eager code
                    forward                 compiled, one graph
                    release the parameters  a hook

Without this, each such hook is a graph break, in a function that the program compiles as a whole.
"""

from __future__ import annotations

from typing import Any

import torch

from . import late_bound_api


class ForwardBetweenHooks:
    """How calls of one module run while it has such hooks, which may be registered at any time."""

    def __init__(self, kwargs: dict[str, Any]):
        self.kwargs = kwargs
        self.forward: Any = None
        self.compiled: Any = None

    def is_needed(self, module: torch.nn.Module) -> bool:
        return any(
            getattr(hook, "__module__", "").startswith("torch.distributed.")
            for hook in module._forward_pre_hooks.values()
        )

    def run(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        members, forward = module.__dict__, module.forward
        if forward is self.compiled:  # a call inside of one
            return module._call_impl(*args, **kwargs)
        if forward != self.forward:
            self.forward, self.compiled = forward, late_bound_api.compile(forward, **self.kwargs)
        before = {"forward": members["forward"]} if "forward" in members else {}
        members["forward"] = self.compiled
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            if members.get("forward") is self.compiled:  # otherwise the program has assigned or deleted it
                del members["forward"]
                members.update(before)
