"""From a captured graph to a program: the compiler's stages, one after the other."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..codegen.llvm import compile_kernels
from ..codegen.llvm.sampler import sampler
from ..codegen.program import build_program
from ..ir.graph import Graph
from ..ir.infer import Untraceable
from ..lower.pipeline import lower
from ..runtime.frozen import FrozenProgram
from ..runtime.program import Program
from ..schedule.choose_calls import choose_calls
from ..schedule.emit import Launch
from ..schedule.frozen import split_frozen
from ..schedule.plan import make_plan, plan_of_calls

__all__ = ["Untraceable", "compile_graph"]


def compile_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> Program | FrozenProgram:
    """Raises Untraceable where the graph holds what must run as it stands."""
    with collection_paused():
        return program_of(gm, example_inputs)


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Compiling makes many small objects that stay: looking for garbage among them costs a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def program_of(gm: GraphModule, example_inputs: Sequence[Any]) -> Program | FrozenProgram:
    graph, tensors = lower(gm, example_inputs)
    constants = dict(enumerate(tensors, len(graph.inputs) - len(tensors)))
    graph = choose_calls(graph)
    parts = split_frozen(graph)
    if parts is None:
        return compiled(graph, constants)
    prologue, main = parts
    once = build_program(plan_of_calls(prologue), [], constants)
    read = {value for node in prologue.nodes for value in node.operands}
    state = [k for k, value in enumerate(prologue.inputs) if value in read and value.is_state]
    return FrozenProgram(compiled(main, constants), once, state, sampler())


def compiled(graph: Graph, constants: Mapping[int, torch.Tensor]) -> Program:
    plan = make_plan(graph)
    kernels = [step.kernel for step in plan.steps if isinstance(step, Launch)]
    return build_program(plan, compile_kernels(kernels), constants)
