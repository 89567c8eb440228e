"""Nested tensors for compilers built on AOTAutograd: their uneven sizes need symbols of torch's.

    with symbols_for(example_inputs):       nothing, unless an input is a nested tensor
        compiled = compile_graph(gm, example_inputs)

`torch.compile` calls its backends in such a context, with symbols for all sizes. Without one, AOTAutograd makes no
symbol for the size of a nested tensor's parts, and fails.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch


def symbols_for(example_inputs: list[Any]) -> contextlib.AbstractContextManager[Any]:
    if not any(isinstance(x, torch.Tensor) and x.is_nested and x.layout is torch.jagged for x in example_inputs):
        return contextlib.nullcontext()
    # These imports are slow.
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv())))
