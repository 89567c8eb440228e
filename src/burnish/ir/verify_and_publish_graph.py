"""Publishes the graph after a pass: emits a `lower` event and runs the verifier.

    before, graph = graph, fold(graph)
    announce("fold_batch_norm", graph, before)

Every pass of `lower` and every graph-to-graph step of `schedule` ends so. Without listeners and the setting `check` it
costs about a microsecond.
"""

from __future__ import annotations

from .. import events
from ..settings import current
from .graph import Graph
from .verifier import verify


def announce(stage: str, graph: Graph, before: Graph | None = None, strides: bool = False) -> None:
    """Pass `before`, the input graph of the step, if the signature must not change. With `strides`, strides must equal
    those of the operators' shape rules."""
    if events.is_watched("lower"):
        events.emit("lower", text=f"after {stage}\n{graph}", stage=stage, graph=graph)
    if current().check:
        verify(graph, stage, before, strides=strides)
