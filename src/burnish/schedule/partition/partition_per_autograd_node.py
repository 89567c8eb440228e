"""The autograd partitioner where autograd gets several nodes: one forward graph, and a backward graph for each.

    h = aten.tanh.default x                         forward(x): h, l
    l = aten.exp.default h
    mul = aten.mul.Tensor l_tangent, l         =>   backward 0(l_tangent, l): mul
    n   = aten.tanh_backward.default h_tangent, h   backward 1(h_tangent, h): n
    return h, l, mul, n

The saved values are chosen for all of them together. A value that two of them compute again is computed by both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.error_check_nodes import is_kept
from ...ir.graph import Alias, Graph, Node, Value, values_in
from ...ir.joint_graph_signature import GradientPiece, Gradients
from ...ir.verify_and_publish_graph import announce
from .activation_memory_budget import choose
from .partition_joint_graph import Splitter


@dataclass(frozen=True, slots=True)
class PieceBackward:
    """The backward graph of a piece. Its inputs are, in this order: the tangents, and the saved inputs, outputs and
    other values."""

    graph: Graph
    saved_inputs: tuple[int, ...]
    """Positions among forward's inputs, or from there on ports: outputs that the piece passes gradients to."""
    saved_outputs: tuple[int, ...]
    """Positions among the program's outputs: those that the piece makes."""
    saved_others: tuple[int, ...]
    """Positions among forward's outputs."""
    watched: tuple[int, ...]
    """Those of `saved_others`, by position there, that share memory with an input or output of the program."""


def partition_pieces(
    graph: Graph, gradients: Gradients, constants: int, budget: float = 1.0
) -> tuple[Graph, list[PieceBackward]]:
    """The last inputs are `constants`. `budget` is the setting `memory_budget`."""
    forward, backwards = PieceSplitter(graph, gradients, constants).parts(budget)
    announce("split_backward forward", forward)
    for part in backwards:
        announce("split_backward backward", part.graph)
    return forward, backwards


class PieceSplitter(Splitter):
    def parts(self, budget: float) -> tuple[Graph, list[PieceBackward]]:
        saved, again, instead = choose(self.chooser, budget)
        inputs, outputs, _, more = self.by_kind(saved)
        nodes = self.backward_nodes(again, instead)
        found, first = [], 0
        for piece in self.gradients.pieces:
            results = self.results[first : first + len(piece.gradients.inputs)]
            first += len(results)
            tangents = [self.tangents[port] for port in piece.makes]
            own, read = self.needed(results, tangents, saved, nodes)
            made = {self.gradients.flows[port] for port in piece.makes if port < len(self.gradients.flows)}
            positions = {value: self.given.index(value) for value in inputs} | self.ports_of(piece)
            given = [value for value in read if value in positions]
            kept = [value for value in read if outputs.get(value) in made]
            others = [value for value in read if value not in positions and value not in kept]
            found.append(
                PieceBackward(
                    self.backward_graph(own, [*tangents, *given, *kept, *others, *self.constants], results),
                    tuple(positions[value] for value in given),
                    tuple(outputs[value] for value in kept),
                    tuple(outputs[x] if x in outputs else len(self.outputs) + more.index(x) for x in others),
                    tuple(k for k, x in enumerate(others) if x in outputs or self.is_seen(x, outputs)),
                )
            )
        return self.forward_graph(more), found

    def ports_of(self, piece: GradientPiece) -> dict[Value, int]:
        """The outputs that a piece passes gradients to, and their positions among its inputs."""
        found = {}
        for k in piece.gradients.inputs:
            port = k - len(self.given)
            if 0 <= port < len(self.gradients.flows):
                out = self.outputs[self.gradients.flows[port]]
                if isinstance(out, Value):
                    found[out] = k
        return found

    def needed(
        self, results: Sequence[object], tangents: Sequence[Value], saved: Sequence[Value], nodes: dict[Node, Node]
    ) -> tuple[dict[Node, Node], list[Value]]:
        """The backward nodes that compute these results, and the saved values that they read, in their order."""
        checks = self.checks_of(tangents)
        own, stops, read = {node: nodes[node] for node in checks}, set(saved), set[Value]()
        stack = values_in(tuple(results))
        stack += [self.graph.inputs[out.input] for out in results if isinstance(out, Alias)]
        stack += [value for node in own.values() for value in node.operands]
        while stack:
            value = stack.pop()
            if value in stops:
                read.add(value)
            elif value.node is not None and value.node not in own:
                own[value.node] = nodes[value.node]
                stack += nodes[value.node].operands
        return own, [value for value in saved if value in read]

    def checks_of(self, tangents: Sequence[Value]) -> list[Node]:
        """The checks of data that depend on these tangents."""
        late, found = set(tangents), []
        for node in self.graph.nodes:
            if any(value in late for value in node.operands):
                late.update(value for value in node.results if value is not None)
                if is_kept(node):
                    found.append(node)
        return found
