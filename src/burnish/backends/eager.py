"""Backends that run the graph as it stands, one Python call a node.

"eager" shows what capture alone does. "burnish" is the default; it runs the graph the same way until the compiler
behind it lands.
"""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule

from .registry import CompiledFn, register_backend


@register_backend(runs_python=True)
def eager(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    """Run the graph with PyTorch's eager operators."""
    return gm.forward


@register_backend(runs_python=True)
def burnish(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    """Burnish's own compiler."""
    return gm.forward
