"""Sets up torch's TracingContext for a backend built on AOTAutograd, where the graph's sizes need symbols.

    with tracing_context(gm, example_inputs):       nothing, unless sizes of the graph need symbols
        compiled = compile_graph(gm, example_inputs)

`torch.compile` always calls its backends in such a context. Without one, AOTAutograd makes no symbols. It fails if the
parts of a nested tensor have sizes of their own, or if a `while_loop` makes numbers.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.fx import GraphModule

from ..foundation.torch_private import DisableTorchFunctionSubclass


def tracing_context(gm: GraphModule, example_inputs: list[Any]) -> contextlib.AbstractContextManager[Any]:
    if not needs_context(gm, example_inputs):
        return contextlib.nullcontext()
    # These imports are slow.
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv(), static_shapes=not has_nested(example_inputs))))


def needs_context(gm: GraphModule, example_inputs: list[Any]) -> bool:
    return has_nested(example_inputs) or any(map(has_loop, gm.modules()))


def has_nested(inputs: list[Any]) -> bool:
    with DisableTorchFunctionSubclass():  # asking a tensor runs no code of its class
        return any(isinstance(x, torch.Tensor) and x.is_nested and x.layout is torch.jagged for x in inputs)


def has_loop(module: torch.nn.Module) -> bool:
    return isinstance(module, GraphModule) and any(
        getattr(node.target, "_name", None) == "while_loop" for node in module.graph.nodes
    )
