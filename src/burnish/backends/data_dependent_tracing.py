"""Data-dependent tracing: how AOTAutograd traces a graph with numbers and sizes that depend on data.

    y = x[mask]; n = y.size(0)          u0 = a symbol of the shape environment: the size of y
    item = x.sum().item()               zuf0 = a symbol for the number

It traces without data. Without a shape environment that makes such symbols, these calls are errors.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

from torch.fx import GraphModule

from ..captured_graph.compile_request import UNBACKED


def reads_data(gm: GraphModule) -> bool:
    """Whether the graph contains numbers or sizes that depend on data."""
    return any(node.target == "item" or UNBACKED in node.meta for node in gm.graph.nodes)


def tracing_for(gm: GraphModule) -> AbstractContextManager[Any]:
    """The context under which AOTAutograd traces the graph."""
    if not reads_data(gm):
        return contextlib.nullcontext()
    from torch._guards import TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    symbols = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True, assume_static_by_default=True)
    return tracing(TracingContext(FakeTensorMode(shape_env=symbols)))
