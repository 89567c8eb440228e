"""The backend "aot_eager": PyTorch's AOTAutograd, with its forward and backward graphs run in eager.

It helps to find the cause of a wrong result: it uses AOTAutograd like "inductor", but generates no code.
"""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule

from .data_dependent_tracing import tracing_for
from .registry import Backend, CompiledFn
from .subclass_rules import is_left_to_rules


def aot_eager(gm: GraphModule, example_inputs: list[Any]) -> CompiledFn:
    """Split forward from backward with AOTAutograd, then run both with PyTorch's eager operators."""
    if is_left_to_rules(gm):
        return gm.forward
    # The import takes most of a second, so it is done here.
    from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

    def run_as_is(graph: GraphModule, inputs: list[Any]) -> CompiledFn:
        return make_boxed_func(graph.forward)

    with tracing_for(gm):
        compiled = aot_module_simplified(gm, example_inputs, fw_compiler=run_as_is, keep_inference_input_mutations=True)
    return lambda *inputs: tuple(compiled(*inputs))


BACKEND = Backend("aot_eager", aot_eager)
