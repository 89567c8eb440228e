"""Forward and backward become graphs of their own; what backward reads of forward is saved, or computed again.

    y = linear x, w, b                    forward(x, w, b): y, z            saves y
    z = aten.gelu.default y         =>
    g = aten.gelu_backward t, y           backward(t, y): g, ...

Forward is what the program's outputs and writes need; all the rest is backward. A value is computed again where that
costs no further memory: an element-wise result of what is saved anyway, a view. What forward stores anyway, results and
operands of library calls, is saved as it is where one of backward reads it: computing it again would save memory, but
no time. Loops read what it is computed from in its place, where that is saved.

Of some operands only the shape counts, as of what a pooling was given. Anything that is saved stands in for them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..ir.build import Builder
from ..ir.gradients import Gradients
from ..ir.graph import Alias, Graph, Node, Value, Write, replaced, values_in
from ..ir.part import part
from ..ir.state import is_random
from ..ir.storage import storage_of
from ..ops.prims import VIEW
from ..ops.record import Pointwise
from .classify import why_not_loop

FEW = 8
"""A value is not computed again from more values than this."""

SMALL = 16
"""What is this many times smaller than a value may be saved in its place."""


FORMAL = {"aten.max_pool2d_with_indices_backward.default": 1, "aten.max_pool3d_with_indices_backward.default": 1,
          "aten.avg_pool2d_backward.default": 1}
"""Which operand's elements an operator does not read: it makes its result as that lies."""


@dataclass(frozen=True, slots=True)
class Halves:
    """Backward is called with the tangents, the inputs that it is given as they are by then, and the saved inputs,
    outputs and other values, in this order."""

    forward: Graph
    backward: Graph
    saved_inputs: tuple[int, ...]
    """Positions among forward's inputs."""
    saved_outputs: tuple[int, ...]
    """Positions among the program's outputs."""
    watched: tuple[int, ...]
    """Of forward's further outputs, which are saved, those that share memory with an output or input of the program.
    Were that written to, they would change."""


def split_backward(graph: Graph, gradients: Gradients, constants: int) -> Halves:
    return Splitter(graph, gradients, constants).halves()


class Splitter:
    def __init__(self, graph: Graph, gradients: Gradients, constants: int):
        self.graph, self.gradients = graph, gradients
        first = gradients.tangents
        end = len(graph.inputs) - constants
        self.given, self.tangents = graph.inputs[:first], graph.inputs[first:end]
        self.constants = graph.inputs[end:]
        self.outputs, self.results = graph.outputs[:gradients.outputs], graph.outputs[gradients.outputs:]
        self.place = {node: k for k, node in enumerate(graph.nodes)}
        self.late_writes = [write for write in graph.writes if write.input >= first]
        """What backward writes to."""
        self.early_writes = [write for write in graph.writes if write.input < first]
        self.made_for = {value for value in values_in(tuple(self.outputs))} | {w.value for w in self.early_writes}
        late = self.nodes_after_tangents()
        self.forward = self.forward_nodes(late)
        checks = [value for node in late if is_kept(node) for value in node.operands]
        written = [write.value for write in self.late_writes]
        self.backward = self.ancestors([*values_in(tuple(self.results)), *checks, *written], stop=self.forward)
        self.backward.update(node for node in late if is_kept(node))
        self.written = {graph.inputs[write.input] for write in self.early_writes}
        # In the order of the program, so that equal graphs are divided alike.
        self.read_directly = dict.fromkeys(
            shown for node in self.graph.nodes if node in self.backward for value in read_by(node)
            for shown in self.shown_by(value))
        self.read_directly |= dict.fromkeys(shown for value in self.read_at_the_end() for shown in with_sources(value))
        self.read_as_stored = {shown for node in self.backward if why_not_loop(node) is not None
                               for value in read_by(node) for shown in with_sources(value)}
        self.read_as_stored.update(shown for value in [*self.read_at_the_end(), *self.made_for]
                                   for shown in with_sources(value))
        self.stored = self.stored_anyway()
        self.known: dict[Value, frozenset[Value] | None] = {}

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

    def shown_by(self, value: Value) -> Iterator[Value]:
        """An input or a value of forward, and what it is a view of."""
        if value.node in self.forward or value.node is None and value in self.given:
            yield from with_sources(value)

    def read_at_the_end(self) -> Iterator[Value]:
        """Inputs and values of forward among the results."""
        for value in values_in(tuple(self.results)):
            if value.node in self.forward or value.node is None and value in self.given:
                yield value
        for write in self.late_writes:
            if write.value.node in self.forward or write.value.node is None and write.value in self.given:
                yield write.value
        for out in self.results:
            if isinstance(out, Alias) and out.input < len(self.given):
                yield self.given[out.input]

    def stored_anyway(self) -> set[Value]:
        found = set(self.made_for)
        for node in self.graph.nodes:
            if node in self.forward and why_not_loop(node) is not None:
                found.update(node.operands)
                found.update(value for value in node.results if value is not None)
        return found

    # ---- saved or computed again

    def choose(self) -> tuple[list[Value], set[Node], dict[Node, Value]]:
        """The values to save, the nodes of forward that backward repeats, and what some nodes are given in the place of
        an operand of which only the shape counts. Readers come before what they read."""
        waiting: list[tuple[int, int, Value]] = []
        seen: set[Value] = set()

        def need(value: Value) -> None:
            if value not in seen and value not in self.constants:
                seen.add(value)
                heapq.heappush(waiting, (-self.at(value), len(seen), value))

        for value in self.read_directly:
            need(value)
        saved: list[Value] = []
        again: set[Node] = set()

        later: list[Value] = []

        def settle() -> None:
            while waiting or later:
                value = heapq.heappop(waiting)[2] if waiting else later.pop(0)
                if value.node is not None and self.is_computed_again(value, seen):
                    again.add(value.node)
                    for operand in value.node.operands:
                        need(operand)
                elif waiting and value in self.stored and value not in self.read_as_stored:
                    later.append(value)  # what it is computed from may turn out to be saved anyway
                else:
                    saved.append(value)

        settle()
        instead: dict[Node, Value] = {}
        for node in self.graph.nodes:
            if node in self.backward and node.op.name in FORMAL:
                value = node.args[FORMAL[node.op.name]]
                if not any(True for _ in self.shown_by(value)) or value in saved:
                    continue
                other = self.stand_in(value, saved)
                if other is not None:
                    instead[node] = other
                else:
                    need(value)
                    settle()
        return saved, again, instead

    def stand_in(self, value: Value, saved: list[Value]) -> Value | None:
        """What lies as the value does, and is the last before it: what came later, backward is done with earlier."""
        alike = [other for other in saved if other.type == value.type and self.at(other) < self.at(value)]
        return max(alike, key=self.at, default=None)

    def at(self, value: Value) -> int:
        return -1 if value.node is None else self.place[value.node]

    def is_computed_again(self, value: Value, seen: set[Value]) -> bool:
        node = value.node
        assert node is not None
        if node.op is VIEW:
            return True
        if value in self.read_as_stored and value in self.stored:
            return False
        sources = self.sources_of(node)
        if sources is None:
            return False
        more = [source for source in sources if source not in seen and source not in self.read_directly]
        # What forward stores anyway is saved in the place of a value that it would have to store as well.
        there = [source for source in more if source in self.stored and value not in self.stored
                 and not self.is_copied(source)]
        return sum(source.type.bytes for source in there) <= value.type.bytes and \
            sum(source.type.bytes for source in more if source not in there) * SMALL <= value.type.bytes

    def sources(self, value: Value) -> frozenset[Value] | None:
        """What must be saved to compute a value again; None where that cannot be."""
        if value in self.known:
            return self.known[value]
        node = value.node
        found: frozenset[Value] | None = frozenset((value,))
        if value in self.constants:
            found = frozenset()
        elif node is None:
            found = found if value in self.given else None
        elif node.op is VIEW or value not in self.stored and is_element_wise(node):
            found = self.sources_of(node)
        self.known[value] = found
        return found

    def sources_of(self, node: Node) -> frozenset[Value] | None:
        """What must be saved to run a node again; None where that cannot be."""
        if node.op is not VIEW and not is_element_wise(node):
            return None
        parts = [self.sources(operand) for operand in node.operands]
        found: frozenset[Value] | None = \
            None if None in parts else frozenset().union(*parts)  # type: ignore[arg-type]
        return None if found is None or len(found) > FEW else found

    def is_copied(self, value: Value) -> bool:
        """Inputs that eager would not save might be written to by then, and that would be an error here alone: copies
        are saved. The bias of a batch norm is one."""
        return value.node is None and (value in self.written or value not in self.read_directly)

    # ---- the graphs

    def halves(self) -> Halves:
        saved, again, instead = self.choose()
        inputs = [value for value in saved if value.node is None and not self.is_copied(value)]
        outputs = {}
        for k, out in enumerate(self.outputs):
            if isinstance(out, Value) and out.node is not None:
                outputs.setdefault(out, k)
        kept = [value for value in saved if value in outputs]
        more = [value for value in saved if value not in outputs and value not in inputs]
        forward, env = part((node for node in self.graph.nodes if node in self.forward), [*self.given, *self.constants])
        forward.outputs = [out if isinstance(out, Alias) else replaced(out, env.__getitem__) for out in self.outputs]
        build = Builder(forward)
        forward.outputs += [build.copy(env[value]) if self.is_copied(value) else env[value] for value in more]
        forward.writes = [write.of(env[write.value]) for write in self.early_writes]
        shared = {*(storage_of(value) for value in outputs), *self.given}
        return Halves(
            forward, self.backward_graph(again, [*inputs, *kept, *more], instead),
            tuple(self.given.index(value) for value in inputs), tuple(outputs[value] for value in kept),
            tuple(k for k, value in enumerate(more) if not self.is_copied(value) and storage_of(value) in shared),
        )

    def backward_graph(self, again: set[Node], saved: list[Value], instead: dict[Node, Value]) -> Graph:
        inputs = [*self.tangents, *saved, *self.constants]
        nodes = {node: given_formally(node, instead[node]) if node in instead else node for node in self.graph.nodes
                 if node in again or node in self.backward}
        graph, env = part(self.late_as_can_be(nodes), inputs)
        for out in self.results:
            if isinstance(out, Alias):
                graph.outputs.append(replace(out, input=inputs.index(self.graph.inputs[out.input])))
            else:
                graph.outputs.append(replaced(out, env.__getitem__))
        graph.writes = [Write(inputs.index(self.graph.inputs[write.input]), env[write.value], write.is_silent)
                        for write in self.late_writes]
        return graph

    def late_as_can_be(self, nodes: Mapping[Node, Node]) -> list[Node]:
        """What the nodes are given as, in the order of the program, but what no tangent is needed for comes right
        before who reads it first. Else it stood at the beginning, for all layers one after the other, and was kept
        until backward gets to its layer."""
        late = dict.fromkeys(node for node in self.nodes_after_tangents() if node in nodes)
        found: dict[Node, None] = {}

        def put(node: Node) -> None:
            stack = [node]
            while stack:
                waiting = [value.node for value in nodes[stack[-1]].operands
                           if value.node in nodes and value.node not in found]
                if waiting:
                    stack += waiting
                else:
                    found[stack.pop()] = None

        for node in late:
            put(node)
        for node in self.graph.nodes:
            if node in nodes and node not in found:
                put(node)
        return [nodes[node] for node in found]


def given_formally(node: Node, other: Value) -> Node:
    """The node with another value in the place of the one whose elements it does not read."""
    at = FORMAL[node.op.name]
    made = Node(node.op, (*node.args[:at], other, *node.args[at + 1:]), node.kwargs, node.line)
    made.results = node.results
    return made


def is_element_wise(node: Node) -> bool:
    return isinstance(node.op.rule, Pointwise) and why_not_loop(node) is None


def read_by(node: Node) -> list[Value]:
    """The operands whose elements count."""
    formal = FORMAL.get(node.op.name)
    return [value for at, arg in enumerate(node.args) if at != formal for value in values_in(arg)] + \
        values_in(tuple(node.kwargs.values()))


def is_kept(node: Node) -> bool:
    """Whether it does something besides making values: it draws random numbers, or checks and may raise."""
    return is_random(node) or not node.results


def with_sources(value: Value) -> Iterator[Value]:
    """A value and what it is a view of."""
    yield value
    while value.node is not None and value.node.op is VIEW:
        value = value.node.args[0]
        yield value
