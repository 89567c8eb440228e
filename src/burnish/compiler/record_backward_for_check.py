"""Records what the backward of one call of a compiled graph takes and gives, for `compare_with_eager`.

    observed = GradientsOfCall(outputs, inputs)
    observed.then(look)                         look() is called at the end of each backward
    observed.from_outside()                     in there: what came to the outputs, by position
    observed.gradients()                        and what went to the inputs

A graph may be several nodes of autograd. What one of them gives another is not from outside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..captured_graph.graph_autograd_nodes import InputEdges, edge_of, name_of_node
from ..foundation.torch_private import execution_engine
from ..runtime.program.autograd_function import Compiled

Port = tuple[int, int]
"""The number of a node and that of one of its outputs; or -1 and the position of an input."""


class GradientsOfCall:
    """Does not reference autograd's nodes, which reference it."""

    def __init__(self, made: Sequence[Any], inputs: Sequence[Any]):
        ends = InputEdges(inputs)
        flows = {k: edge_of(x) for k, x in enumerate(made) if has_history(x) and ends.at(edge_of(x)) is None}
        nodes: dict[Any, int] = {}
        stack = [node for node, _ in flows.values()]
        while stack:
            node = stack.pop()
            if node not in nodes:
                nodes[node] = len(nodes)
                stack += [edge[0] for edge in node.next_functions if edge[0] is not None and ends.at(edge) is None]
        self.is_complete = all(name_of_node(node) == f"{Compiled.__name__}Backward" for node in nodes)
        """Whether all nodes between outputs and inputs are those of compiled code. Others make views, for example."""
        self.flows: dict[int, Port] = {k: (nodes[node], at) for k, (node, at) in flows.items()}
        self.targets: list[list[Port | None]] = [
            [
                None if edge[0] is None else (-1, end) if end is not None else (nodes[edge[0]], edge[1])
                for edge in node.next_functions
                for end in [ends.at(edge)]
            ]
            for node in nodes
        ]
        """For each node, where its gradients go."""
        self.inputs = sorted(
            {target[1] for edges in self.targets for target in edges if target and target[0] < 0 <= target[1]}
        )
        self.given: dict[Port, list[Any]] = {}
        self.taken: dict[int, Sequence[Any]] = {}
        """What came to each node."""
        self.look: Callable[[], None] = lambda: None
        if self.is_complete:
            for node, number in nodes.items():
                node.register_hook(functools.partial(self.note, number))

    def then(self, look: Callable[[], None]) -> None:
        self.look = look

    def note(self, number: int, gradients: Sequence[Any], tangents: Sequence[Any]) -> None:
        if not self.taken and len(self.targets) > 1:
            execution_engine.queue_callback(self.finish)
        self.taken[number] = tangents
        for target, gradient in zip(self.targets[number], gradients, strict=True):
            if target is not None and gradient is not None:
                self.given.setdefault(target, []).append(gradient.detach())
        if len(self.targets) == 1:
            self.finish()

    def finish(self) -> None:
        try:
            self.look()
        finally:
            self.given, self.taken = {}, {}

    def from_outside(self) -> dict[int, Any]:
        """Empty if backward did not run through all nodes that got a gradient."""
        if any(number >= 0 and number not in self.taken for number, _ in self.given):
            return {}
        found = {}
        for k, port in self.flows.items():
            came = self.taken[port[0]][port[1]] if port[0] in self.taken else None
            inner = self.sum_at(port)
            if came is not None and inner is not None:
                came = came.detach() - inner
            if came is not None and (inner is None or bool(came.any())):
                found[k] = came
        return found

    def gradients(self) -> list[tuple[int, Any]]:
        return [(k, self.sum_at((-1, k))) for k in self.inputs]

    def sum_at(self, port: Port) -> Any:
        parts = self.given.get(port)
        return parts and functools.reduce(torch.add, parts)


def has_history(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.grad_fn is not None
