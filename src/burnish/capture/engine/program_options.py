"""The options of a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...frontend import torch_config
from ...frontend.dynamic_shapes_and_sources import DynamicSpec


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
    name: str | None = None  # shown for the compiled function in reports
    recompile_limit: int | None = None  # in place of the setting segment_limit
    sizes: DynamicSpec | None = None  # the argument dynamic_shapes
    exports: bool = False  # the graph is for other tools: nodes of Python are written as operators of torch
    keeps_blocks: bool = False  # a block compiled as a region is a call in the graph: see repeated_blocks

    @property
    def wants_operators(self) -> bool:
        """Whether a graph may only contain functions of torch."""
        return self.exports or not self.runs_python

    @property
    def keeps_numbers(self) -> bool:
        """Whether a graph may read numbers of the user's code from tensors. A backend of others, which compiles for
        constant numbers, gets them where the alternative is an error, or where Dynamo's setting asks for them."""
        return self.runs_python or self.fullgraph or bool(torch_config.dynamo("capture_scalar_outputs"))

    @property
    def keeps_sizes(self) -> bool:
        """Whether sizes that depend on data may be part of a graph, on the same conditions. Otherwise the part after a
        break is compiled for symbolic sizes, which is faster."""
        return self.fullgraph or bool(torch_config.dynamo("capture_dynamic_output_shape_ops"))

    @property
    def shows_operators(self) -> bool:
        """Whether a backend of others gets the graph, which may know the operators of `torch.compile`."""
        return not (self.exports or self.runs_python)
