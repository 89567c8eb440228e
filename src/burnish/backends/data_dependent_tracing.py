"""Data-dependent tracing: how AOTAutograd traces a graph with numbers and sizes that depend on data.

    y = x[mask]; n = y.size(0)          u0 = a symbol of the shape environment: the size of y
    item = x.sum().item()               zuf0 = a symbol for the number
    math.pow(item, 0.5)                 power(item, 0.5): math.pow would ask for the symbol's value

It traces without data. Without a shape environment that makes such symbols, these calls are errors.
"""

from __future__ import annotations

import contextlib
import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.fx import GraphModule

from ..captured_graph.compile_request import UNBACKED


def reads_data(gm: GraphModule) -> bool:
    """Whether the graph contains numbers or sizes that depend on data."""
    return any(node.target == "item" or UNBACKED in node.meta for node in gm.graph.nodes)


def tracing_for(gm: GraphModule) -> AbstractContextManager[Any]:
    """The context under which AOTAutograd traces the graph, whose powers of numbers are made traceable."""
    if not reads_data(gm):
        return contextlib.nullcontext()
    powers = gm.graph.find_nodes(op="call_function", target=math.pow)
    for node in powers:
        node.target = power
    if powers:
        gm.recompile()
    from torch._guards import TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    symbols = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True, assume_static_by_default=True)
    return tracing(TracingContext(FakeTensorMode(shape_env=symbols)))


def power(base: Any, exponent: Any) -> Any:
    """``math.pow``. The power of a negative number is an error there, and a complex number for ``**``."""
    if not isinstance(base, torch.SymFloat):
        return math.pow(base, exponent)
    torch.ops.aten._assert_scalar.default(base >= 0, "math domain error")
    return base**exponent
