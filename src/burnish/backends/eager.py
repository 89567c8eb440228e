"""The backend "eager": the graph as it stands, one Python call a node. It shows what capture alone does."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..compiler.adapters.eager_checkpoint_regions import with_regions
from .registry import CompiledFn, register_backend


def run(gm: GraphModule) -> CompiledFn:
    """The graph's Python code, generated on the first call."""
    forward: Any = None

    def call(*args: Any) -> Any:
        nonlocal forward
        if forward is None:
            made = with_regions(gm)
            _LazyGraphModule.force_recompile(made)
            forward = made.forward
        return forward(*args)

    return call


@register_backend(runs_python=True, recomputes=True)
def eager(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    """Run the graph with PyTorch's eager operators."""
    return run(gm)
