"""The plan's data types: `pipeline` builds the steps, `memory/liveness` places their values, codegen prints them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..ir.graph import Graph, Node, Value
from ..ops.burnish_primitives import RUN
from ..tensors.tensor_types import TensorType
from ..tensors.views.index_range_conditions import Noted
from .loops.build_kernel import Launch
from .loops.loop_ir import print_kernel


@dataclass(frozen=True, slots=True)
class Call:
    """An operator that runs as its eager kernel."""

    node: Node
    in_place: Any = None
    """The overload that writes the result into the first argument, where that argument may be overwritten."""


@dataclass(frozen=True, slots=True)
class MakeView:
    """`value` is a view of `source`, which is in memory: `type` gives shape and strides, `offset` is in elements."""

    value: Value
    source: Value
    type: TensorType
    offset: int


Step = Launch | Call | MakeView


@dataclass(slots=True)
class Plan:
    graph: Graph
    steps: list[Step]
    offsets: dict[Value, int] = field(default_factory=dict)
    """Arena offset in bytes of each intermediate value that kernels produce."""
    arena: int = 0
    placed: dict[Value, Value] = field(default_factory=dict)
    """Values that are stored in the input they are written back to."""
    scratch: dict[Node, int] = field(default_factory=dict)
    """Arena offset in bytes of a library call's workspace."""
    in_place: dict[Value, Value] = field(default_factory=dict)
    """Values that kernels store in the buffer of another intermediate value, whose last use is in that kernel."""
    in_output_buffer: dict[Value | Node, tuple[Value, int]] = field(default_factory=dict)
    """Intermediate values and workspaces that share an output's buffer, and their byte offset in it. The output is
    allocated in every run, and is first written after their last use."""
    noted: Noted = field(default_factory=list)
    """For symbolic sizes: the margins by which the kernels' indices stay within parts of values."""

    def __str__(self) -> str:
        parts = []
        for step in self.steps:
            match step:
                case Launch(kernel, buffers):
                    parts.append(f"{print_kernel(kernel)}\n  on {', '.join(map(str, buffers))}")
                case Call(node, in_place):
                    parts.append(f"call {node}" if in_place is None else f"call in place {node}")
                case MakeView(value, source, type, offset):
                    parts.append(f"show {value}: {type} = {source} from {offset}")
        parts += [f"{value} is in place of {below}" for value, below in self.in_place.items()]
        for host in dict.fromkeys(host for host, _ in self.in_output_buffer.values()):
            inside = [
                f"{value if isinstance(value, Value) else f'what {value.results[0]} needs'} at {at}"
                for value, (where, at) in self.in_output_buffer.items()
                if where is host
            ]
            parts.append(f"in {host} before it is written: {', '.join(inside)}")
        return "\n".join(parts)


def name_of(step: Step) -> str:
    """What people call it: a kernel's name, the library that computes a product, an operator."""
    match step:
        case Launch(kernel, _):
            return kernel.name
        case Call(node):
            return node.args[0].name if node.op is RUN else node.op.name
        case MakeView(value):
            return f"view {value}"


def line_of(step: Step) -> str | None:
    """The line of the user's program that it comes from; the first of several."""
    match step:
        case Launch(kernel, _):
            return next(iter(kernel.origin), None)
        case Call(node):
            return node.line
        case MakeView(value):
            return None if value.node is None else value.node.line


def plan_of_calls(graph: Graph) -> Plan:
    """A plan without kernels, one call for each node: for graphs that run only once."""
    return Plan(graph, [Call(node) for node in graph.nodes])
