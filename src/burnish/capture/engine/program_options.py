"""The options of a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Options:
    """The arguments of ``compile``, and the caller's wishes."""

    backend: Callable
    backend_name: str = "burnish"
    runs_python: bool = True
    fullgraph: bool = False
    dynamic: bool | None = None
    stance: Callable[[], str] = lambda: "default"
    keeps_data: bool = True  # numbers and sizes that depend on data may be part of a graph
    sinks: list = field(default_factory=list)  # called with each segment: explain and export
    keeps_blocks: bool = False  # a block compiled as a region is a call in the graph: see repeated_blocks
