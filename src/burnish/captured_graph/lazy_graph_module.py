"""Lazy torch.fx graph modules: their Python code is generated at first use and freed with the module.

torch.fx generates the code of every graph module at once, even if it never runs, and keeps the text forever. A process
that recompiles often would grow.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..concurrency import own_builtins
from ..foundation.torch_private import LazyGraphModule, graph_code_loader
from .compile_request import REQUEST, request_of
from .warnings_already_given import REGISTRY, registry_for


def graph_module(
    root: torch.nn.Module | dict[str, Any], graph: torch.fx.Graph, name: str = "GraphModule"
) -> torch.fx.GraphModule:
    """The graph as a module with the attributes of `root` that it uses. Its code is generated at first use."""
    made = Lazy(root, graph, name)
    weakref.finalize(made, forget_code, type(made)).atexit = False
    return made


class Lazy(LazyGraphModule):
    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Any:
        """Torch's calls the module, with the hooks that the program has registered for all modules."""
        self.real_recompile()
        return self.forward(*args, **kwargs)

    forward = _lazy_forward

    def real_recompile(self) -> None:
        with own_builtins.usual():
            super().real_recompile()
        known = request_of(self).warnings_already_given if REQUEST in self.meta else {}
        if known:
            lines = [line for _, _, line in type(self).forward.__code__.co_lines() if line is not None]
            type(self).forward.__globals__[REGISTRY] = registry_for(known, lines)


def without_hooks(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """What a backend has made of a graph. If that is a graph module, the hooks for all modules do not see it."""
    if not isinstance(compiled, torch.fx.GraphModule) or compiled._forward_hooks or compiled._forward_pre_hooks:
        return compiled
    LazyGraphModule.force_recompile(compiled)
    return compiled.forward


def forget_code(generated: type) -> None:
    key = generated.forward.__code__.co_filename
    if not key.startswith("<"):
        return  # never generated
    if graph_code_loader is not None:
        graph_code_loader.eval_cache.pop(key, None)
    linecache.cache.pop(key, None)
