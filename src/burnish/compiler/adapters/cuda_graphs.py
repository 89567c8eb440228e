"""Replays what a compiled graph starts on a GPU as CUDA graphs, for the setting `cuda_graphs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from ... import events
from ...captured_graph.compile_request import facts_of_input
from ...tensors.device_facts import gpus_of


def with_cuda_graphs(compiled: Any, gm: GraphModule, example_inputs: Sequence[Any], written: Sequence[int]) -> Any:
    """The graph as CUDA graphs, if it computes on one GPU."""
    devices = gpus_of(example_inputs)
    name = f"a graph of {len(gm.graph.nodes)} nodes"
    why = None
    if len(devices) != 1:
        why = "it computes on several GPUs" if devices else "it does not compute on a GPU"
    elif compiled.takes_gradients:
        why = why_not_recorded_with_backward(getattr(compiled, "program", compiled))
    if why is not None:
        events.emit("runtime.cuda_graphs", text=f"{name} runs without a CUDA graph: {why}", why=why)
        return compiled
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    fixed = [k for k, node in enumerate(placeholders) if facts_of_input(node).is_module_state]
    from ...runtime.cuda_graphs.cuda_graph_recording import engine_of
    from ...runtime.cuda_graphs.cuda_graph_replay import CudaGraphProgram
    from ...runtime.cuda_graphs.training_cuda_graphs import CudaGraphTrainingProgram

    graphed = CudaGraphTrainingProgram if compiled.takes_gradients else CudaGraphProgram
    return graphed(compiled, fixed, written, engine_of(devices.pop()), name)


def why_not_recorded_with_backward(step: Any) -> str | None:
    if any(layout.again for layout in step.layouts_of_nodes):
        return "a part of it is checkpointed, and writes to its inputs again when backward runs"
    return None
