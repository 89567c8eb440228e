"""Recomputation: which values that later nodes read are saved in memory, and which are computed again.

    crossing = Crossing(graph, given, constants, early, late, made_for)
    saved, again, instead = crossing.choose()

A value is computed again where that costs no further memory: an element-wise result of what is saved anyway, a view.
What the early nodes store anyway, results and operands of library calls, is saved as it is where one of the late ones
reads it: computing it again would save memory, but no time. Loops read what it is computed from in its place, where
that is saved.

Of some operands only the shape counts, as of what a pooling was given. Anything that is saved stands in for them.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ... import fuel
from ...ir.frozen_values import is_random
from ...ir.graph import Graph, Node, Value, values_in
from ...ops.burnish_primitives import VIEW
from ...ops.operator_record import Pointwise
from ..target_machines import machine_of
from .loop_or_library_call import is_cheap, is_widened, why_not_loop

FEW = 8
"""A value is not computed again from more values than this."""

SMALL = 16
"""What is this many times smaller than a value may be saved in its place."""


FORMAL = {
    "aten.max_pool2d_with_indices_backward.default": 1,
    "aten.max_pool3d_with_indices_backward.default": 1,
    "aten.avg_pool2d_backward.default": 1,
}
"""Which operand's elements an operator does not read: it makes its result as that lies."""


class Crossing:
    def __init__(
        self,
        graph: Graph,
        given: Sequence[Value],
        constants: Sequence[Value],
        early: set[Node],
        late: set[Node],
        made_for: set[Value],
        at_the_end: Sequence[Value] = (),
        written: set[Value] | None = None,
    ):
        """`given` are the inputs that may be saved. `made_for` is what early nodes have to make whoever reads it,
        `at_the_end` what is read beside the late nodes. Where the late ones run by themselves, `written` are the inputs
        that are written to before."""
        self.graph, self.given, self.constants = graph, set(given), set(constants)
        self.early, self.late, self.made_for, self.written = early, late, made_for, written
        self.place = {node: k for k, node in enumerate(graph.nodes)}
        # In the order of the program, so that equal graphs are divided alike.
        self.read_directly = dict.fromkeys(
            shown for node in graph.nodes if node in late for value in read_by(node) for shown in self.shown_by(value)
        )
        self.read_directly |= dict.fromkeys(shown for value in at_the_end for shown in with_sources(value))
        self.read_as_stored = {
            shown
            for node in late
            if why_not_loop(node) is not None
            for value in read_by(node)
            for shown in with_sources(value)
        }
        self.read_as_stored.update(shown for value in [*at_the_end, *made_for] for shown in with_sources(value))
        self.stored = self.stored_anyway()
        self.known: dict[Value, frozenset[Value] | None] = {}
        self.asked_again: set[Node] = set()
        """Early nodes that are run again whatever that takes, see `memory_budget`."""

    def shown_by(self, value: Value) -> Iterator[Value]:
        """An input or an early value, and what it is a view of, or is a wider copy of."""
        if value.node in self.early or value.node is None and value in self.given:
            yield from with_sources(value)
            if is_widened(value):
                yield from self.shown_by(value.node.args[0])  # type: ignore[union-attr]

    def stored_anyway(self) -> set[Value]:
        found = set(self.made_for)
        reads: dict[Value, tuple[int, int]] = {}
        calls: list[int] = []
        for node in self.graph.nodes:
            if node not in self.early:
                continue
            at = self.place[node]
            for value in node.operands:
                for shown in with_sources(value):
                    reads[shown] = reads.get(shown, (at, at))[0], at
            if why_not_loop(node) is not None:
                calls.append(at)
                for value in node.operands:
                    found.update(with_sources(value) if keeps_operands(value) else (value,))
                found.update(value for value in node.results if value is not None)
        # What is read before a call and behind it, as what goes past a layer, one kernel stores for the other.
        for value, (first, last) in reads.items():
            node = value.node
            if (
                node is not None
                and isinstance(node.op.rule, Pointwise)
                and not is_cheap(node)
                and bisect.bisect(calls, first) < bisect.bisect(calls, last - 1)
            ):
                found.add(value)
        return found

    # ---- saved or computed again

    def choose(self) -> tuple[list[Value], set[Node], dict[Node, Value]]:
        """The values to save, the early nodes that are repeated, and what some late nodes are given in the place of an
        operand of which only the shape counts. Readers come before what they read."""
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
                if (
                    value.node is not None
                    and (value.node in self.asked_again or self.is_computed_again(value, seen))
                    and (is_always_again(value.node) or fuel.allows("rematerialize", value.node, "it runs again"))
                ):
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
            if node in self.late and node.op.name in FORMAL:
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
        if is_always_again(node):
            return True
        if value in self.read_as_stored and value in self.stored:
            return False
        if is_widened(value) and self.sources(node.args[0]) is not None:
            return True
        sources = self.sources_of(node)
        if sources is None:
            return False
        more = [source for source in sources if source not in seen and source not in self.read_directly]
        # What is stored anyway is saved in the place of a value that it would have to store as well.
        there = [
            source
            for source in more
            if source in self.stored and value not in self.stored and not self.is_copied(source)
        ]
        return (
            sum(source.type.bytes for source in there) <= value.type.bytes
            and sum(source.type.bytes for source in more if source not in there) * SMALL <= value.type.bytes
        )

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
        found: frozenset[Value] | None = None if None in parts else frozenset().union(*parts)  # type: ignore[arg-type]
        return None if found is None or len(found) > FEW else found

    def is_copied(self, value: Value) -> bool:
        """Inputs that eager would not save might be written to by then, and that would be an error here alone: copies
        are saved. The bias of a batch norm is one."""
        if value.node is not None or self.written is None:
            return False
        return value in self.written or value not in self.read_directly


def late_as_can_be(graph: Graph, first: Iterable[Node], nodes: Mapping[Node, Node]) -> list[Node]:
    """What the nodes are given as: the first ones in their order, and any other right before who reads it first. Else
    what is computed again stood at the beginning, for all layers one after the other, and was kept until it is read."""
    found: dict[Node, None] = {}

    def put(node: Node) -> None:
        stack = [node]
        while stack:
            waiting = [
                value.node for value in nodes[stack[-1]].operands if value.node in nodes and value.node not in found
            ]
            if waiting:
                stack += waiting
            else:
                found[stack.pop()] = None

    for node in first:
        put(node)
    for node in graph.nodes:
        if node in nodes and node not in found:
            put(node)
    return [nodes[node] for node in found]


def given_formally(node: Node, other: Value) -> Node:
    """The node with another value in the place of the one whose elements it does not read."""
    at = FORMAL[node.op.name]
    made = Node(node.op, (*node.args[:at], other, *node.args[at + 1 :]), node.kwargs, node.line)
    made.results = node.results
    return made


def is_always_again(node: Node) -> bool:
    """A view, or a constant: as an output of the program that would be written to perhaps before it is read."""
    return node.op is VIEW or not node.operands and not is_random(node)


def keeps_operands(value: Value) -> bool:
    machine = machine_of(value.type.device)
    return machine is not None and machine.keeps_operands


def is_element_wise(node: Node) -> bool:
    return isinstance(node.op.rule, Pointwise) and why_not_loop(node) is None


def read_by(node: Node) -> list[Value]:
    """The operands whose elements count."""
    formal = FORMAL.get(node.op.name)
    return [value for at, arg in enumerate(node.args) if at != formal for value in values_in(arg)] + values_in(
        tuple(node.kwargs.values())
    )


def with_sources(value: Value) -> Iterator[Value]:
    """A value and what it is a view of."""
    yield value
    while value.node is not None and value.node.op is VIEW:
        value = value.node.args[0]
        yield value
