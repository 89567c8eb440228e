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
    sinks: list = field(default_factory=list)  # called with each segment: explain and export
    exports: bool = False  # the graph is for other tools: what is a node of Python otherwise is operators of torch
    keeps_blocks: bool = False  # a block compiled as a region is a call in the graph: see repeated_blocks

    @property
    def wants_operators(self) -> bool:
        """Whether a graph may only contain functions of torch."""
        return self.exports or not self.runs_python
