"""The backend "eager": runs the graph unchanged, one Python call per node. It shows the effect of capture alone."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule

from ..compiler import CompiledFn
from ..compiler.adapters.eager_checkpoint_regions import run_eagerly
from .registry import Backend


def eager(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    """Run the graph with PyTorch's eager operators."""
    return run_eagerly(gm)


BACKEND = Backend("eager", eager, runs_python=True, recomputes=True)
