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
        return self.exported.unchecked(args, kwargs)


def to_torch_export(exported: ExportedGraph) -> torch.export.ExportedProgram:
    """Trace the graph again with torch.export, on tensors like those it was exported with, for the same sizes."""
    examples = {symbol.name: symbol.example for symbol in exported.ranges}
    dims = {symbol.name: dim_of(f"s{k}", symbol) for k, symbol in enumerate(exported.ranges)}
    made: dict[int, torch.Tensor] = {}
    leaves: list[Any] = []
    said: list[Any] = []
    for described in exported.inputs:
        if isinstance(described, TensorInput):
            if described.node not in made:
                shape = [size if isinstance(size, int) else size.at(examples) for size in described.shape]
                made[described.node] = torch.zeros(shape, dtype=described.dtype, device=described.device)
            leaves.append(made[described.node])
            opened = {k: size for k, size in enumerate(described.shape) if not isinstance(size, int)}
            said.append({k: size.at(dims) for k, size in opened.items()})
        else:
            leaves.append(described.value)
            said.append(None)
    args, kwargs = pytree.tree_unflatten(leaves, exported.arguments)
    # By position: the module takes *args, which torch.export describes as one argument.
    args_said, kwargs_said = pytree.tree_unflatten(said, exported.arguments)
    shapes = {**({"args": tuple(args_said)} if args else {}), **kwargs_said} if exported.ranges else None
    return torch.export.export(AsModule(exported), args, kwargs, dynamic_shapes=shapes)


def dim_of(name: str, symbol: Any) -> Any:
    name = symbol.name if symbol.name.isidentifier() else name
    return torch.export.Dim(name, min=symbol.least or None, max=symbol.most)
