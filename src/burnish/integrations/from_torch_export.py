"""Takes in programs of torch.export: as modules to compile, and with their sizes to export again.

    burnish.compile(exported_program)              its module, compiled
    burnish.export(exported_program)               a graph for the sizes that the program is for
    burnish.load("model.pt2", trust=True)          the same of a file

A `.pt2` file holds pickled values, so reading one runs what it says: `load` only does with ``trust=True``.
"""

from __future__ import annotations

import os
import sys
import zipfile
from typing import Any

import torch
from torch.utils import _pytree as pytree


def is_exported_program(value: Any) -> bool:
    """Where torch.export is not imported, there are none."""
    module: Any = sys.modules.get("torch.export.exported_program")
    return module is not None and isinstance(value, module.ExportedProgram)


def callable_of(value: Any) -> Any:
    """The module of an exported program; anything else is callable itself."""
    return value.module() if is_exported_program(value) else value


def class_name_of(program: Any) -> str:
    """Of the module that it was made from, as far as the program knows: its graph module has none to show."""
    for node in program.graph.nodes:
        for path, kind in (node.meta.get("nn_module_stack") or {}).values():
            if not path:
                return str(getattr(kind, "__qualname__", kind)).rpartition(".")[2]
    return "ExportedProgram"


def example_of(program: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """The arguments that a program was exported with, and its sizes as ``dynamic_shapes`` says them."""
    args, kwargs = program.example_inputs
    names = program.graph_signature.user_inputs
    placeholders = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    dims = Dims(program.range_constraints)
    leaves, nesting = pytree.tree_flatten((args, dict(kwargs)))
    said = [
        dims.of(placeholders.get(name)) if isinstance(leaf, torch.Tensor) else None
        for name, leaf in zip(names, leaves, strict=True)
    ]
    args_said, kwargs_said = pytree.tree_unflatten(said, nesting)
    return args, dict(kwargs), [*args_said, *kwargs_said.values()] if dims.made else None


class Dims:
    """``Dim`` for the symbols in the shapes of a program's inputs."""

    def __init__(self, ranges: Any):
        self.ranges = ranges
        self.made: dict[str, Any] = {}

    def of(self, value: Any) -> dict[int, Any] | None:
        if not isinstance(value, torch.Tensor):
            return None
        found = {
            dim: self.dim(size.node.expr) for dim, size in enumerate(value.shape) if isinstance(size, torch.SymInt)
        }
        return {dim: size for dim, size in found.items() if size is not None} or None

    def dim(self, expression: Any) -> Any:
        """None for a size that is not ``factor * symbol + added``: it is that of the example."""
        symbols = list(expression.free_symbols)
        if len(symbols) != 1:
            return None
        (symbol,) = symbols
        factor, added = expression.coeff(symbol), expression.subs(symbol, 0)
        if not (factor.is_Integer and added.is_Integer and factor > 0) or expression != factor * symbol + added:
            return None
        dim = self.made.get(str(symbol)) or self.root(symbol)
        dim = dim if factor == 1 else int(factor) * dim
        return dim if not added else dim + int(added)

    def root(self, symbol: Any) -> Any:
        known = self.ranges.get(symbol)
        least = None if known is None else int(known.lower)
        most = None if known is None or not known.upper.is_Integer else int(known.upper)
        made = self.made[str(symbol)] = torch.export.Dim(str(symbol), min=least, max=most)
        return made


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a file is one of torch.export's. What cannot be read is none."""
    from ..export.file_format import DAMAGED

    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/archive_format") for name in archive.namelist())
    except (zipfile.BadZipFile, *DAMAGED):
        return False


def load_archive(path: str | os.PathLike[str]) -> Any:
    return torch.export.load(path)
