"""What traces of one program may do: each capability is withdrawn once a trace has failed because of it.

    program.capabilities.keeps_classes = False     a class made in a trace has left its segment
    m.capabilities.keeps_classes                   so the next trace ends before it makes one

A trace has a copy, because other threads withdraw capabilities while it runs.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from ..python.calls.inner_whole_graphs import InnerWholeGraphs

MOST_CHANGES = 3
"""How often Python in a graph may return other tensors than before; from then on it breaks the graph."""


@dataclass(slots=True)
class TraceCapabilities:
    keeps_assertions: bool = True
    """Assertions about tensors become part of the graph."""
    keeps_functions: bool = True
    """Functions that torch.func has returned stay in the segment: see `vjp`."""
    sees_unused_outputs: bool = True
    """Custom autograd functions that see which outputs are used are part of the graph: see `unused_outputs`."""
    keeps_classes: bool = True
    """Classes made in the trace stay in the segment: see `class_creation`."""
    assigns_data: bool = True
    """`tensor.data = value` is part of the graph."""
    enters_modes: bool = True
    """Torch function modes and dual levels are entered in the trace: see `function_modes`."""
    called_as_is: frozenset[Any] = frozenset()
    """Cached functions that get constants: see `cached_answers`."""
    inner_whole_graphs: InnerWholeGraphs = field(default_factory=InnerWholeGraphs)
    native_rules: weakref.WeakKeyDictionary[type, str] = field(default_factory=weakref.WeakKeyDictionary)
    """Classes of tensors whose rules are not interpreted: see `subclasses`."""
    results_changed: int = 0
    """How often Python in a graph returned other tensors."""

    @property
    def may_run_opaquely(self) -> bool:
        """Whether Python may be a node of the graph: see `opaque_nodes`."""
        return self.results_changed < MOST_CHANGES

    @property
    def numbers_vary_in_nodes(self) -> bool:
        """Whether such nodes may be given numbers that change."""
        return not self.results_changed
