"""Converts a Burnish export to a torch.export ExportedProgram. Only this file imports torch.export, a slow import.

program = burnish.export(model, (x,)).to_torch_export()      # a torch.export.ExportedProgram
program.module()(x)
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..export.exported_graph import ExportedGraph, TensorInput


class AsModule(torch.nn.Module):
    """The exported graph with the original signature; its attributes keep their names."""

    def __init__(self, exported: ExportedGraph):
        super().__init__()
        module = exported.graph_module
        # Shared, not copied: torch.export swaps tensors in these tables while it traces, and the graph must see it.
        for table in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[table] = module.__dict__[table]
        self.__dict__["exported"] = exported

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.exported(*args, **kwargs)


def to_torch_export(exported: ExportedGraph) -> torch.export.ExportedProgram:
    """Trace the graph again with torch.export, on tensors like those it was exported with."""
    made: dict[int, torch.Tensor] = {}
    leaves: list[Any] = []
    for described in exported.inputs:
        if isinstance(described, TensorInput):
            if described.node not in made:
                made[described.node] = torch.zeros(described.shape, dtype=described.dtype, device=described.device)
            leaves.append(made[described.node])
        else:
            leaves.append(described.value)
    args, kwargs = pytree.tree_unflatten(leaves, exported.arguments)
    return torch.export.export(AsModule(exported), args, kwargs)
