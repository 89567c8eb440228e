"""Lazy torch.fx graph modules: their Python code is generated at first use and freed with the module.

torch.fx generates the code of every graph module at once, even if it never runs, and keeps the text forever. A process
that recompiles often would grow.
"""

from __future__ import annotations

import linecache
import weakref
from typing import Any

import torch
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module


def graph_module(
    root: torch.nn.Module | dict[str, Any], graph: torch.fx.Graph, name: str = "GraphModule"
) -> torch.fx.GraphModule:
    """The graph as a module with the attributes of `root` that it uses. Its code is generated at first use."""
    with _use_lazy_graph_module(True):
        made = _make_graph_module(root, graph, name)
    weakref.finalize(made, forget_code, type(made)).atexit = False
    return made


def forget_code(generated: type) -> None:
    key = generated.forward.__code__.co_filename
    if not key.startswith("<"):
        return  # never generated
    loader = getattr(torch.fx.graph_module, "_loader", None)
    if loader is not None:
        loader.eval_cache.pop(key, None)
    linecache.cache.pop(key, None)
