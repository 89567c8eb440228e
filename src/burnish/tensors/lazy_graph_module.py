"""torch.fx's graph modules, as we make them: their Python code is made late and forgotten in time.

torch.fx writes the Python code of a graph when a module is made of it, whether somebody runs it or not, and keeps the
text for ever: a process that compiles again and again would grow.
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
    """The graph over what it names of `root`. Its code is written when somebody runs it or asks for it."""
    with _use_lazy_graph_module(True):
        made = _make_graph_module(root, graph, name)
    weakref.finalize(made, forget_code, type(made)).atexit = False
    return made


def forget_code(generated: type) -> None:
    key = generated.forward.__code__.co_filename
    if not key.startswith("<"):
        return  # never written
    loader = getattr(torch.fx.graph_module, "_loader", None)
    if loader is not None:
        loader.eval_cache.pop(key, None)
    linecache.cache.pop(key, None)
