"""The adapters around a compiled graph as one ordered list, innermost first, for static and symbolic sizes alike.

program                 the recipe, linked: no modes, no switches
  inference_mode        makes results inference tensors where eager's are
    contest             times the first calls against eager

[runtime.adapters] a graph of 5 nodes: inference_mode, contest            printed with show="runtime"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from ... import events
from ...captured_graph.compile_request import CompiledFn, request_of
from ...runtime.contest.inference_contest import Contest
from ...runtime.contest.synchronized_clock import clock_for
from ...runtime.contest.training_contest import TrainingContest
from ...settings import current
from .autocast_off import autocast_is_on, without_autocast
from .cuda_graphs import with_cuda_graphs
from .exit_global_state import Calls, switches_left, with_exit_state
from .inference_mode_results import in_inference_mode, mode_of_results


@dataclass
class Surroundings:
    """What the adapters of one compiled graph may need."""

    gm: GraphModule
    example_inputs: Sequence[Any]
    eager: CompiledFn
    written: Sequence[int]
    """The positions of the inputs that the program writes to."""
    takes_gradients: bool
    work: Callable[[Sequence[Any]], float] | None = None
    """How much a call computes, where sizes are symbolic."""
    left: Calls = field(init=False)
    """The switches of torch that the graph leaves changed."""

    def __post_init__(self) -> None:
        self.left = switches_left(self.gm)

    @property
    def name(self) -> str:
        return f"a graph of {len(self.gm.graph.nodes)} nodes"


@dataclass(frozen=True)
class Adapter:
    name: str
    adapt: Callable[[Any, Surroundings], Any]
    """Returns what it is given where the graph does not need it."""
    why: str
    why_here: str
    is_in_recipe: bool = False
    """Whether the recipe alone runs as well, so that an exported file may hold it in place of the graph."""


def _cuda_graphs(compiled: Any, around: Surroundings) -> Any:
    if not current().cuda_graphs:
        return compiled
    return with_cuda_graphs(compiled, around.gm, around.example_inputs, around.written)


def _autocast_off(compiled: Any, around: Surroundings) -> Any:
    return without_autocast(compiled) if autocast_is_on() else compiled


def _exit_state(compiled: Any, around: Surroundings) -> Any:
    return with_exit_state(compiled, around.left) if around.left else compiled


def _inference_mode(compiled: Any, around: Surroundings) -> Any:
    mode = mode_of_results(around.gm)
    return compiled if mode is None else in_inference_mode(compiled, mode)


def _comparison(compiled: Any, around: Surroundings) -> Any:
    if not current().check or around.left:  # two runs would leave switches changed twice
        return compiled
    from ..compare_with_eager import compared

    return compared(compiled, around.gm, around.eager)


def _contest(compiled: Any, around: Surroundings) -> Any:
    if not current().compares or request_of(around.gm).is_local:
        return compiled  # one process must not choose eager, and wait where the others do not
    kind = TrainingContest if around.takes_gradients else Contest
    return kind(compiled, around.eager, around.name, work=around.work, clock=clock_for(around.example_inputs))


ADAPTERS = (
    Adapter(
        "cuda_graphs",
        _cuda_graphs,
        "A CPU starts many small kernels slower than a GPU runs them.",
        "Directly around the program: a recording holds launches, and no Python of other adapters.",
    ),
    Adapter(
        "autocast_off",
        _autocast_off,
        "The casts of autocast are part of the graph: operators that the program calls must not cast again.",
        "Inside the switches that the graph leaves, which may be those of autocast.",
    ),
    Adapter(
        "exit_state",
        _exit_state,
        "A segment may end inside `with torch.no_grad()`: what follows in Python needs the switches as they are there.",
        "Around autocast_off, which restores the switches that it found.",
    ),
    Adapter(
        "inference_mode",
        _inference_mode,
        "A program without modes makes its results in the mode in which it is called, which may not be eager's.",
        "Around all that computes, so that each result is made in this mode.",
    ),
    Adapter(
        "comparison",
        _comparison,
        "The setting `check` compares the first calls with eager.",
        "Around all that may be wrong.",
        is_in_recipe=True,
    ),
    Adapter(
        "contest",
        _contest,
        "The first calls are timed, and eager stays where it is faster.",
        "Outermost: it replaces all the others by eager, and times what they cost.",
        is_in_recipe=True,
    ),
)


def wrap_in_adapters(compiled: Any, around: Surroundings) -> CompiledFn:
    """The compiled graph inside all adapters that it needs."""
    names: list[str] = []
    for adapter in ADAPTERS:
        inner, compiled = compiled, adapter.adapt(compiled, around)
        if compiled is not inner:
            names.append(adapter.name)
            if not adapter.is_in_recipe:
                request_of(around.gm).digest = None
    events.emit("runtime.adapters", text=f"{around.name}: {', '.join(names) or 'no adapters'}", adapters=names)
    return compiled
