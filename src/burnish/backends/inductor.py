"""The backend "inductor": PyTorch's own compiler behind Burnish's capture. On CPU it needs a C++ compiler."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule

from .registry import CompiledFn, register_backend


@register_backend
def inductor(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    """Compile the graph with TorchInductor."""
    # Takes seconds to import, so only where it is asked for.
    from torch._inductor.compile_fx import compile_fx

    compiled = compile_fx(gm, example_inputs)
    return lambda *inputs: tuple(compiled(*inputs))
