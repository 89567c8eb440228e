"""The autograd partitioner: the joint graph is split into forward and backward; values are saved or recomputed.

    y = linear x, w, b                    forward(x, w, b): y, z            saves y
    z = aten.gelu.default y         =>
    g = aten.gelu_backward t, y           backward(t, y): g, ...

Forward is everything that the program's outputs and writes need; the rest is backward. `saved_or_recomputed` decides
which values are recomputed, and from what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...ir.alias_analysis import storage_of
from ...ir.error_check_nodes import is_kept
from ...ir.extract_subgraph import extract_subgraph
from ...ir.graph import Alias, Graph, Node, Value, Write, map_values, values_in
from ...ir.graph_builder import Builder
from ...ir.joint_graph_signature import Gradients
from ...ir.verify_and_publish_graph import announce
from .activation_memory_budget import choose
from .saved_or_recomputed import RecomputeChooser, late_as_can_be, with_shape_stand_in


@dataclass(frozen=True, slots=True)
class Halves:
    """Backward's inputs are, in this order: the tangents, the inputs that it reads in their state at that time, and the
    saved inputs, outputs and other values."""

    forward: Graph
    backward: Graph
    saved_inputs: tuple[int, ...]
    """Positions among forward's inputs."""
    saved_outputs: tuple[int, ...]
    """Positions among the program's outputs."""
    watched: tuple[int, ...]
    """Those of forward's extra, saved outputs that alias an output or input of the program. A write to that output or
    input would change them."""
    others: int
    """How many extra, saved outputs there are: forward's last outputs, and backward's last inputs but its constants."""


def partition_joint_graph(graph: Graph, gradients: Gradients, constants: int, budget: float = 1.0) -> Halves:
    """The last inputs are `constants`. `budget` is the setting `memory_budget`."""
    halves = Splitter(graph, gradients, constants).halves(budget)
    announce("split_backward forward", halves.forward)
    announce("split_backward backward", halves.backward)
    return halves


class Splitter:
    def __init__(self, graph: Graph, gradients: Gradients, constants: int):
        self.graph, self.gradients = graph, gradients
        first = gradients.tangents
        end = len(graph.inputs) - constants
        self.given, self.tangents = graph.inputs[:first], graph.inputs[first:end]
        self.constants = graph.inputs[end:]
        self.outputs, self.results = graph.outputs[: gradients.outputs], graph.outputs[gradients.outputs :]
        self.late_writes = [write for write in graph.writes if write.input >= first]
        """Writes that backward does."""
        self.early_writes = [write for write in graph.writes if write.input < first]
        self.made_for = {value for value in values_in(tuple(self.outputs))} | {w.value for w in self.early_writes}
        late = self.nodes_after_tangents()
        self.forward = self.forward_nodes(late)
        checks = [value for node in late if is_kept(node) for value in node.operands]
        ends = [*values_in(tuple(self.results)), *checks, *(write.value for write in self.late_writes)]
        self.backward = self.ancestors(ends, stop=self.forward)
        self.backward.update(node for node in late if is_kept(node))
        written = {graph.inputs[k] for k in (*(write.input for write in self.early_writes), *gradients.overwritten)}
        self.chooser = RecomputeChooser(
            graph,
            self.given,
            self.constants,
            self.forward,
            self.backward,
            self.made_for,
            list(self.read_at_the_end()),
            written,
        )

    def nodes_after_tangents(self) -> list[Node]:
        late: set[Value] = set(self.tangents)
        found = []
        for node in self.graph.nodes:
            if any(value in late for value in node.operands):
                found.append(node)
                late.update(value for value in node.results if value is not None)
        return found

    def forward_nodes(self, late: list[Node]) -> set[Node]:
        found = self.ancestors(self.made_for)
        behind = set(late)
        for node in self.graph.nodes:
            if node not in found and node not in behind and is_kept(node):
                found |= self.ancestors(node.operands) | {node}
        return found

    def ancestors(self, values: Iterable[Value], stop: Iterable[Node] = ()) -> set[Node]:
        found: set[Node] = set()
        stack = [value.node for value in values]
        while stack:
            node = stack.pop()
            if node is not None and node not in found and node not in stop:
                found.add(node)
                stack.extend(value.node for value in node.operands)
        return found

    def read_at_the_end(self) -> Iterator[Value]:
        """Inputs and forward values among the results of backward."""
        for value in values_in(tuple(self.results)):
            if value.node in self.forward or value.node is None and value in self.given:
                yield value
        for write in self.late_writes:
            if write.value.node in self.forward or write.value.node is None and write.value in self.given:
                yield write.value
        for out in self.results:
            if isinstance(out, Alias) and out.input < len(self.given):
                yield self.given[out.input]

    # ---- the graphs

    def halves(self, budget: float) -> Halves:
        saved, again, instead = choose(self.chooser, budget)
        inputs, outputs, kept, more = self.by_kind(saved)
        return Halves(
            self.forward_graph(more),
            self.backward_graph(
                self.backward_nodes(again, instead),
                [*self.tangents, *inputs, *kept, *more, *self.constants],
                self.results,
                self.late_writes,
            ),
            tuple(self.given.index(value) for value in inputs),
            tuple(outputs[value] for value in kept),
            tuple(k for k, value in enumerate(more) if self.is_seen(value, outputs)),
            len(more),
        )

    def by_kind(self, saved: Sequence[Value]) -> tuple[list[Value], dict[Value, int], list[Value], list[Value]]:
        """Of the saved values: the inputs; the positions of all outputs; the outputs; and the others."""
        inputs = [value for value in saved if value.node is None and not self.chooser.is_copied(value)]
        outputs: dict[Value, int] = {}
        for k, out in enumerate(self.outputs):
            if isinstance(out, Value) and out.node is not None:
                outputs.setdefault(out, k)
        kept = [value for value in saved if value in outputs]
        return inputs, outputs, kept, [value for value in saved if value not in outputs and value not in inputs]

    def is_seen(self, value: Value, outputs: Iterable[Value]) -> bool:
        """Whether a saved value shares memory with an input or output of the program."""
        shared = {*(storage_of(out) for out in outputs), *self.given}
        return not self.chooser.is_copied(value) and storage_of(value) in shared

    def forward_graph(self, more: Sequence[Value]) -> Graph:
        """Returns the program's outputs, and more values."""
        is_copied = self.chooser.is_copied
        forward, env = extract_subgraph(
            (node for node in self.graph.nodes if node in self.forward), [*self.given, *self.constants]
        )
        forward.outputs = map_values(self.outputs, env.__getitem__)
        build = Builder(forward)
        forward.outputs += [build.copy(env[value]) if is_copied(value) else env[value] for value in more]
        forward.writes = [write.of(env[write.value]) for write in self.early_writes]
        return forward

    def backward_nodes(self, again: set[Node], instead: dict[Node, Value]) -> dict[Node, Node]:
        return {
            node: with_shape_stand_in(node, instead[node]) if node in instead else node
            for node in self.graph.nodes
            if node in again or node in self.backward
        }

    def backward_graph(
        self, nodes: dict[Node, Node], inputs: Sequence[Value], results: Sequence[object], writes: Sequence[Write] = ()
    ) -> Graph:
        first = [node for node in self.nodes_after_tangents() if node in nodes]
        graph, env = extract_subgraph(late_as_can_be(self.graph, first, nodes), inputs)
        for out in results:
            if isinstance(out, Alias):
                graph.outputs.append(replace(out, input=inputs.index(self.graph.inputs[out.input])))
            else:
                graph.outputs.append(map_values(out, env.__getitem__))
        graph.writes = [
            Write(inputs.index(self.graph.inputs[write.input]), env[write.value], write.is_silent) for write in writes
        ]
        return graph
