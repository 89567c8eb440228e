"""Outlining: recorded calls as one node with a graph, as `torch.compile` gives a checkpointed function to its backends.

    sin = torch.sin(x)              checkpoint = tag_activation_checkpoint(wrap_body_0, x, w, use_reentrant=False)
    mm = torch.mm(sin, w)           mm = checkpoint[0]

The function has been interpreted, and its calls were recorded like all others. Afterwards those from ``start`` on move
into a graph of their own, whose operands are the tensors that they read, in the order of their first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ....runtime.argument_trees import mapped
from ...engine.build_fx_graph import GRAPH_NAME
from ...engine.torch_call_records import Handle, TorchCall
from ..graph_regions.graph_region import graph_of_calls


def group(m: Any, start: int, target: Any, options: dict[str, Any]) -> torch.fx.GraphModule | None:
    """Replace the calls from ``start`` on by one of ``target``, which gets their graph and returns those of their
    results that are still alive. Returns the graph; None if nothing was replaced, because a call reads numbers of the
    graph, or sizes may vary, or a backend that removes unused nodes would remove an effect."""
    recorder = m.recorder
    if m.unbacked_sizes.has_sizes or (m.symbolic_sizes is not None and m.symbolic_sizes.symbols.is_any):
        return None
    results = sorted(made_since(recorder, start), key=lambda made: made[0].call)
    calls, operands = recorder.calls[start:], operands_of(recorder, start)
    if not results or operands is None or any(call.target == "item" for call in calls):
        return None
    graph = graph_of_calls(m, start, calls, operands, [handle for handle, _ in results])
    if any(has_effect(node) for node in graph.graph.nodes if node.op not in ("placeholder", "output")):
        return None
    graph.meta[GRAPH_NAME] = "wrap_body"
    given = tuple(map(recorder.tensor, operands.values()))
    recorder.drop_calls(start)
    recorder.grown = {at: dim for at, dim in recorder.grown.items() if at < start}
    recorder.calls.append(TorchCall(target, (graph, *given), options, m.user_line()))
    recorder.register([value for _, value in results], Handle(start))
    return graph


def has_effect(node: torch.fx.Node) -> bool:
    """Whether a node does something besides its result: it asserts, draws, or changes a mode. The node with the graph
    has no effect for `torch.fx`."""
    return node.is_impure() or "generator" in node.kwargs


def made_since(recorder: Any, start: int) -> Iterator[tuple[Handle, torch.Tensor]]:
    for reference, handle in recorder.known.values():
        value = reference()
        if isinstance(value, torch.Tensor) and isinstance(handle.call, int) and handle.call >= start:
            yield handle, value


def operands_of(recorder: Any, start: int) -> dict[int, torch.Tensor] | None:
    """By handle, the tensors from before ``start`` that later calls read; None if there are other values."""
    known = {id(handle): reference() for reference, handle in recorder.known.values()}
    found: dict[int, Any] = {}

    def note(handle: Handle) -> Handle:
        if handle.call is None and handle.key is not None:
            found[id(handle)] = recorder.examples[handle.key]
        elif not (isinstance(handle.call, int) and handle.call >= start):
            found[id(handle)] = known.get(id(handle))
        return handle

    for call in recorder.calls[start:]:
        mapped((call.args, call.kwargs), Handle, note)
    return found if all(isinstance(value, torch.Tensor) for value in found.values()) else None
