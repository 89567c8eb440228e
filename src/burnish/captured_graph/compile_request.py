"""Facts about a captured graph that travel in its `meta`, from capture to the compiler.

    request_of(gm).written_inputs          positions of the inputs that the graph writes to
    facts_of_input(placeholder).is_module_state

A backend is called as ``backend(gm, example_inputs)``, and custom backends know nothing more. The facts travel with the
graph in ``meta``, in one typed record for the graph and one for each input. A graph of another origin (an exported
file, ``torch.compile(backend="burnish")``) has neither, and the defaults hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

CompiledFn = Callable[..., Any]
"""The compiled form of a captured graph."""

REQUEST, INPUT = "burnish_request", "burnish_input"
UNBACKED = "burnish_unbacked"
"""The mark of a node whose result has a size that depends on data."""
UNSTRIDED = "burnish_unstrided"
"""The mark of a node whose result is, or holds, a tensor without strides, such as a sparse one."""


@dataclass(slots=True)
class CompileRequest:
    calls_before_compiling: int = 0
    """0 compiles at once. Graphs that may not be called again run eagerly first."""

    guards_number_types: bool = False
    """Whether the graph only sees numbers of the types that it was captured with. Then numbers may stay live."""

    symbolic_inputs: Any = None
    """Sizes of inputs that are symbolic (``capture.symbolic_sizes``), or None: all sizes are those of the examples."""

    size_numbers: tuple[int, ...] = ()
    """Inputs that are numbers computed from symbolic sizes, in a graph that is compiled for each size or in parts."""

    written_inputs: tuple[int, ...] = ()
    overwritten_inputs: tuple[int, ...] = ()
    """Inputs that the caller writes to as soon as the graph has run."""

    calls_alone: int = 0
    """Set by the compiler: how many calls run as they are because they could not be traced, in a part also those of
    the whole graph."""

    is_refused: bool = False
    """Set by the compiler: the graph runs eagerly."""

    outputs_are_inference: tuple[bool | None, ...] = ()
    """For each output, whether it is an inference tensor, if the graph switches inference mode; None: no tensor."""

    is_local: bool = False
    """Set by the compiler: the `DTensor`s of the graph are made in it, of local tensors."""

    native_rules: str = ""
    """Why rules of tensor subclasses run in the graph, as text for messages; empty where none do."""

    has_functions_of_users: bool = False
    """Whether some of these rules are a `__torch_function__` of the program, which would see each call of a tracer."""

    warnings_already_given: dict[Any, Any] = dataclasses.field(default_factory=dict)
    """Warnings that the calls gave while they were recorded."""

    draws_as_eager: bool | None = None
    """Whether random numbers are eager's. Read from the settings when the graph is first compiled."""

    programs: dict[str, bytes] | None = None
    """Compiled programs of an exported file, by digest: looked up before the disk cache, and added to."""

    digest: str | None = None
    """Set by the compiler: the digest of the program's cache key."""


@dataclass(frozen=True, slots=True)
class InputFacts:
    is_module_state: bool = False
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()


NO_FACTS = InputFacts()


def request_of(gm: GraphModule) -> CompileRequest:
    request = gm.meta.get(REQUEST)
    if request is None:
        request = gm.meta[REQUEST] = CompileRequest()
    return request


def copy_request(gm: GraphModule, copy: GraphModule) -> None:
    copy.meta[REQUEST] = dataclasses.replace(request_of(gm))


def facts_of_input(node: Node) -> InputFacts:
    return node.meta.get(INPUT, NO_FACTS)
