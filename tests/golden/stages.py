"""Captures programs, lowers them up to a stage, and prints the result.

made("functionalize", program)      the graphs of every stage up to that one
printed("functionalize", program)   the text for a golden file
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

import burnish
from burnish.captured_graph.compile_request import INPUT, InputFacts
from burnish.ir.graph import Graph
from burnish.ir.untraceable_graph import Untraceable
from burnish.ir.verifier import verify
from burnish.lower import pipeline
from burnish.lower.passes.unalias_outputs import unalias_outputs
from burnish.lower.trace.trace_to_aten import trace
from burnish.schedule.pipeline import make_plan
from burnish.schedule.rewrites.fold_constants import fold_constants

from ..ir.parse_graph import parse_graph, parse_type
from ..recorded_events import recorded
from .cases import Case

Captured = tuple[torch.fx.GraphModule, list]
PASSES = {step.__name__: step for step in pipeline.PASSES}


@dataclass(slots=True)
class Lowered:
    """The graph after each stage, in order, and their inputs."""

    stages: list[tuple[str, Graph]]
    inputs: list[Any]
    constants: list[torch.Tensor] = field(default_factory=list)


def function(program: str) -> tuple[Callable, dict[str, str]]:
    """The last function of a program, and the type of each argument as it is written."""
    space: dict[str, Any] = {"torch": torch, "F": F}
    exec(compile(f"from __future__ import annotations\n{program}", "<golden>", "exec"), space)
    fn = [value for value in space.values() if inspect.isfunction(value)][-1]
    return fn, {name: str(p.annotation).strip("'\"") for name, p in inspect.signature(fn).parameters.items()}


def example(text: str, seed: int = 0) -> torch.Tensor:
    """A tensor of a type; of whole numbers small ones, that can be indices."""
    type = parse_type(text.removesuffix(" state"))
    made = torch.empty_strided(type.shape, type.stride, dtype=type.dtype)
    generator = torch.Generator().manual_seed(seed)
    if type.dtype.is_floating_point:
        return made.copy_(torch.rand(type.shape, generator=generator, dtype=torch.float64) * 2 - 0.5)
    return made.copy_(torch.randint(0, 2, type.shape, generator=generator))


def lowered(program: str, last: str = "unalias_outputs", seed: int = 0) -> Lowered:
    """Every stage of the way down, or those up to the first one called `last`."""
    fn, types = function(program)
    given = {name: example(text, seed + k) for k, (name, text) in enumerate(types.items())}
    ((gm, inputs),) = captured(fn, tuple(given.values()))
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            node.meta[INPUT] = InputFacts(types.get(node.name, "").endswith(" state"))
    return lower(gm, inputs, last)


def captured(fn: Callable, args: tuple, kwargs: dict[str, Any] | None = None) -> list[Captured]:
    """The graphs of one call, each with its arguments as they were before the call."""
    found: list[Captured] = []
    # When a graph is complete its operations have run: arguments may have been written to.
    originals = dict(zip(map(id, args), copies(list(args)), strict=True))

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        found.append((gm, [originals[id(x)] if id(x) in originals else copies([x])[0] for x in inputs]))
        return gm.forward

    with torch.no_grad():
        burnish.compile(fn, backend=backend, fullgraph=True)(*args, **kwargs or {})
    return found


def copies(inputs: list[Any]) -> list[Any]:
    """The same tensors in other memory, with the same layout."""
    return [
        torch.empty(0, dtype=x.dtype).set_(x.untyped_storage().clone(), x.storage_offset(), x.shape, x.stride())
        if isinstance(x, torch.Tensor)
        else x
        for x in inputs
    ]


def lower(gm: torch.fx.GraphModule, inputs: list[Any], last: str = "unalias_outputs") -> Lowered:
    with torch.no_grad():
        traced = trace(gm, inputs)
    into = Lowered([], inputs, traced.constants)
    steps = [
        ("trace", lambda graph: traced.graph),
        *((step.__name__, step) for step in pipeline.PASSES),
        ("unalias_outputs", lambda graph: unalias_outputs(graph, traced.graph, len(traced.constants))),
    ]
    graph = None
    for name, step in steps:
        before, graph = graph, step(graph)
        verify(graph, name, before, strides=name == "trace")
        into.stages.append((name, graph))
        if name == last:
            break
    return into


def printed(case: Case) -> str:
    """The text below [out]."""
    last = case.stage if case.stage in PASSES or case.stage in ("trace", "unalias_outputs") else "unalias_outputs"
    if not case.is_python:
        graph = parse_graph(case.program)
        verify(graph, "what is given")
        return FINISH.get(case.stage, lambda graph: passed(case.stage, graph))(graph)
    try:
        graph = lowered(case.program, last).stages[-1][1]
    except Untraceable as reason:
        return f"runs eagerly: {reason}"
    return FINISH.get(case.stage, str)(graph)


def passed(stage: str, graph: Graph) -> str:
    made = PASSES[stage](graph)
    verify(made, stage, graph)
    return str(made)


def parts(graph: Graph) -> str:
    made = fold_constants(graph)
    if made is None:
        return "nothing is done once"
    for part in made:
        verify(part, "fold_constants")
    return f"once: {made[0]}\nevery call: {made[1]}"


def plan(graph: Graph) -> str:
    """The steps, then why things were not fused. Where kernels come from is left out."""
    with recorded("loops", datum="text") as texts:
        make_plan(graph)
    return "\n".join(line for line in texts[0].rstrip().splitlines() if not line.startswith("#"))


FINISH: dict[str, Callable[[Graph], str]] = {"fold_constants": parts, "plan": plan}
"""Stages whose result is not one graph."""
