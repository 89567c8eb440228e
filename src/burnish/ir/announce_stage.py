"""A step from graph to graph is done: listeners are given the graph, and it is verified.

    before, graph = graph, fold(graph)
    announce("fold_batch_norm", graph, before)

Every pass of `lower` and every step of `schedule` that makes a graph of a graph ends so. With nobody listening and
without the setting `check` it costs about a microsecond.
"""

from __future__ import annotations

from .. import events
from ..settings import current
from .graph import Graph
from .verifier import verify


def announce(stage: str, graph: Graph, before: Graph | None = None, strides: bool = False) -> None:
    """`before` is the graph that the step was given, where the new one takes and returns the same. `strides`: every
    value has the strides that its operator's rule gives."""
    if events.is_watched("lower"):
        events.emit("lower", text=f"after {stage}\n{graph}", stage=stage, graph=graph)
    if current().check:
        verify(graph, stage, before, strides=strides)


__all__ = ["announce"]
