"""The backend "inductor": PyTorch's TorchInductor behind Burnish's capture. On a CPU it needs a C++ compiler."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule

from .data_dependent_tracing import tracing_for
from .registry import Backend, CompiledFn
from .subclass_rules import is_left_to_rules


def inductor(
    gm: GraphModule, example_inputs: list[Any], *, mode: str | None = None, options: dict[str, Any] | None = None
) -> CompiledFn:
    """Compile the graph with TorchInductor, with its own modes and options."""
    if is_left_to_rules(gm):
        return gm.forward
    # The import takes seconds, so it is done here.
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    patches = {**(list_mode_options(mode) if mode else {}), **(options or {})}
    with tracing_for(gm):
        compiled = compile_fx(gm, example_inputs, config_patches=patches or None)
    return lambda *inputs: tuple(compiled(*inputs))


BACKEND = Backend("inductor", inductor)
