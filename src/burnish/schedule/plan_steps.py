"""What a plan is made of: `plan` makes them, `lives` says where their values lie, and codegen writes them down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..ir.graph import Graph, Node, Value
from ..tensors.tensor_types import TensorType
from .loops.build_kernel import Launch
from .loops.loop_ir import print_kernel


@dataclass(frozen=True, slots=True)
class Call:
    """An operator run by its eager kernel."""

    node: Node
    in_place: Any = None
    """The overload that does the same to the first argument, where that may be overwritten."""


@dataclass(frozen=True, slots=True)
class Show:
    """`value` is a view of `source`, which lies in memory: `type`'s shape and strides, `offset` elements further on."""

    value: Value
    source: Value
    type: TensorType
    offset: int


Step = Launch | Call | Show


@dataclass(slots=True)
class Plan:
    graph: Graph
    steps: list[Step]
    offsets: dict[Value, int] = field(default_factory=dict)
    """Of the intermediate values that kernels make, in the arena, in bytes."""
    arena: int = 0
    placed: dict[Value, Value] = field(default_factory=dict)
    """Values that lie in inputs, which they are written to."""
    scratch: dict[Node, int] = field(default_factory=dict)
    """Where in the arena a call has the memory that it needs while it runs, in bytes."""
    over: dict[Value, Value] = field(default_factory=dict)
    """Values that kernels store in the memory of others, which are made in the plan and done with by then."""
    lodged: dict[Value | Node, tuple[Value, int]] = field(default_factory=dict)
    """Intermediate values, and calls' memory, that lie in values the graph makes memory for in every run, and where, in
    bytes: until those are first written nothing else lies there."""

    def __str__(self) -> str:
        parts = []
        for step in self.steps:
            match step:
                case Launch(kernel, buffers):
                    parts.append(f"{print_kernel(kernel)}\n  on {', '.join(map(str, buffers))}")
                case Call(node, in_place):
                    parts.append(f"call {node}" if in_place is None else f"call in place {node}")
                case Show(value, source, type, offset):
                    parts.append(f"show {value}: {type} = {source} from {offset}")
        parts += [f"{value} lies over {below}" for value, below in self.over.items()]
        for host in dict.fromkeys(host for host, _ in self.lodged.values()):
            inside = [
                f"{value if isinstance(value, Value) else f'what {value.results[0]} needs'} at {at}"
                for value, (where, at) in self.lodged.items()
                if where is host
            ]
            parts.append(f"in {host} before it is written: {', '.join(inside)}")
        return "\n".join(parts)


def plan_of_calls(graph: Graph) -> Plan:
    """Every node by itself, without kernels: for what runs once."""
    return Plan(graph, [Call(node) for node in graph.nodes])


__all__ = ["Call", "Plan", "Show", "Step", "plan_of_calls"]
