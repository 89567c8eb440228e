"""Free variables of a function that is interpreted: the cells in its closure, with their sources."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ...engine.object_lifetimes import Origin


def put_cells(m: Any, function: FunctionType, values: list, code: Any) -> None:
    """Give a frame its free variables; a cell from outside is addressed through its function."""
    cells = function.__closure__ or ()
    at = code.n_locals - len(cells)
    origin = m.heap.origin_of(function)
    for i, cell in enumerate(cells):
        values[at + i] = cell
        if id(cell) not in m.own_cells and id(cell) not in m.origins:
            if origin is not None:
                source = origin.source.attr("__closure__").item(i)
            elif id(function) in m.heap.fresh:
                continue
            else:
                source = m.heap.sources.pin(cell)
            source.label = function.__code__.co_freevars[i]
            m.origins[id(cell)] = Origin(cell, source)
