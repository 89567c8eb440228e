"""Facts about a torch call for custom backends: the modules that make it, and all lines on the stack."""

from __future__ import annotations

from types import CellType
from typing import Any

import torch

from ....captured_graph.call_site import CallingModule, CallSite
from ...guards.object_sources import Source
from ...interpreter.frames import Frame, cell_value, frames_from


def call_site(m: Any, text: str) -> CallSite:
    """``text``: the innermost line of the user's code."""
    lines, modules = [], []
    for frame in frames_from(m.frame):
        co = frame.code.co
        if not frame.code.is_ours:
            lines.append(f'  File "{co.co_filename}", line {frame.line}, in {co.co_name}')
        module = module_of(frame)
        if module is not None:
            modules.append(CallingModule(str(id(module)), path_of(m, module), type(module)))
    if modules and modules[-1].path == "L['self']":  # the compiled module itself
        modules.pop()
    innermost = m.frame
    instruction = innermost.code.opnames[innermost.pc - 1] if innermost is not None else ""
    return CallSite.of(text, tuple(reversed(lines)), tuple(reversed(modules)), instruction)


def module_of(frame: Frame) -> torch.nn.Module | None:
    """The module whose ``forward`` the frame runs."""
    if frame.code.co.co_name != "forward" or not frame.code.co.co_argcount:
        return None
    value = frame.locals[0]
    if type(value) is CellType:
        value = cell_value(value)
    return value if isinstance(value, torch.nn.Module) else None


def path_of(m: Any, module: torch.nn.Module) -> str:
    origin = m.heap.origin_of(module)
    return type(module).__qualname__ if origin is None else words_of(origin.source)


def words_of(source: Source) -> str:
    """The source as `torch.compile` writes it."""
    if source.base is None:
        return f"L[{str(source)!r}]"
    if source.label:
        return f"L[{source.label!r}]"
    if source.kind in ("members", "cell"):
        return words_of(source.base)
    if source.kind == "item" and source.base.base is None and source.base.is_pinned:
        return f"G[{source.key!r}]"
    if source.kind == "item" and source.key in ("_modules", "_parameters", "_buffers"):
        return words_of(source.base)
    return f"{words_of(source.base)}.{source.key}"
