"""From a captured graph to a program: the compiler's stages, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from ..codegen.llvm import compile_kernels
from ..codegen.program import build_program
from ..lower.pipeline import lower
from ..lower.trace import Untraceable
from ..runtime.program import Program
from ..schedule.emit import Launch
from ..schedule.plan import make_plan

__all__ = ["Untraceable", "compile_graph"]


def compile_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> Program:
    """Raises Untraceable where the graph holds what must run as it stands."""
    graph, constants = lower(gm, example_inputs)
    plan = make_plan(graph)
    kernels = [step.kernel for step in plan.steps if isinstance(step, Launch)]
    return build_program(plan, compile_kernels(kernels), constants)
