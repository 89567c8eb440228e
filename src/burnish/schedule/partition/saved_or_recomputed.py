"""Recomputation (rematerialization): which values that later nodes read are saved in memory, and which are computed
again.

    chooser = RecomputeChooser(graph, given, constants, early, late, made_for)
    saved, again, instead = chooser.choose()

A value is recomputed where that needs no further memory: a view, or an element-wise result of saved values. Results and
operands of early library calls are stored anyway. Where a late library call reads one, it is saved: recomputing it
would save memory but no time. Late loops read the values it is computed from instead, where those are saved.

Some operands are read only for their shape, such as the input of pooling. Any saved value of that type stands in.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...ir import fuel
from ...ir.frozen_values import is_random
from ...ir.graph import Graph, Node, Value, values_in
from ...ops.burnish_primitives import VIEW
from ...ops.operator_record import Pointwise
from ...ops.target_record import target_of
from .loop_or_library_call import is_cheap, is_widened, why_not_loop

FEW = 8
"""A value is not recomputed from more values than this."""

SMALL = 16
"""A value that is this many times smaller may be saved instead of the larger one. On a GPU, two thirds
of the size are small enough: half precision, the larger one computed in float32."""


SHAPE_ONLY = {
    "aten.max_pool2d_with_indices_backward.default": 1,
    "aten.max_pool3d_with_indices_backward.default": 1,
    "aten.avg_pool2d_backward.default": 1,
}
"""The operand whose elements an operator does not read: it only gives the result its shape and strides."""


class RecomputeChooser:
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
        """`given` are the inputs that may be saved. `made_for` are values that early nodes must produce anyway, and
        `at_the_end` values that are read after the late nodes. Where the late nodes are a graph of their own, `written`
        are the inputs that are written before it runs."""
        self.graph, self.given, self.constants = graph, set(given), set(constants)
        self.early, self.late, self.made_for, self.written = early, late, made_for, written
        self.place = {node: k for k, node in enumerate(graph.nodes)}
        # In program order, so that equal graphs are partitioned equally.
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
        self.in_forward_memory = {
            shown
            for node in late
            if node.op.notes.get("reads_forward_memory")
            for value in node.operands
            for shown in with_sources(value)
        }
        """Values that a late node reads in the very memory that an early node has read."""
        self.stored = self.stored_anyway()
        self.known: dict[Value, frozenset[Value] | None] = {}
        self.asked_again: set[Node] = set()
        """Early nodes that are recomputed whatever their cost, see `activation_memory_budget`."""

    def shown_by(self, value: Value) -> Iterator[Value]:
        """An input or an early value, with the bases of a view and the source of a widening conversion."""
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
        # A value read both before and after a call, such as a residual: one kernel stores it for the other.
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
        """The values to save, the early nodes to repeat, and the stand-ins for operands of late nodes that are read
        only for their shape. Readers are visited before their operands."""
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
                    and self.is_computed_again(value, seen)
                    and (is_always_again(value.node) or fuel.allows("rematerialize", value.node, "it runs again"))
                ):
                    again.add(value.node)
                    for operand in value.node.operands:
                        need(operand)
                elif waiting and value in self.stored and value not in self.read_as_stored:
                    later.append(value)  # the values it is computed from may turn out to be saved anyway
                else:
                    saved.append(value)

        settle()
        instead: dict[Node, Value] = {}
        for node in self.graph.nodes:
            if node in self.late and node.op.name in SHAPE_ONLY:
                value = node.args[SHAPE_ONLY[node.op.name]]
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
        """The last saved value before it with the same type: backward is done with later values earlier."""
        alike = [other for other in saved if other.type == value.type and self.at(other) < self.at(value)]
        return max(alike, key=self.at, default=None)

    def at(self, value: Value) -> int:
        return -1 if value.node is None else self.place[value.node]

    def is_computed_again(self, value: Value, seen: set[Value]) -> bool:
        node = value.node
        assert node is not None
        if value in self.in_forward_memory:
            return node.op is VIEW  # of the same memory again
        if is_always_again(node) or node in self.asked_again:
            return True
        if value in self.read_as_stored and value in self.stored:
            return False
        if is_widened(value) and self.sources(node.args[0]) is not None:
            return True
        sources = self.sources_of(node)
        if sources is None:
            return False
        more = [source for source in sources if source not in seen and source not in self.read_directly]
        # Values that are stored anyway are saved instead of one that would have to be stored in addition.
        there = [
            source
            for source in more
            if source in self.stored and value not in self.stored and not self.is_copied(source)
        ]
        further = sum(source.type.bytes for source in more if source not in there)
        return sum(source.type.bytes for source in there) <= value.type.bytes and (
            further * SMALL <= value.type.bytes or keeps_operands(value) and 3 * further <= 2 * value.type.bytes
        )

    def sources(self, value: Value) -> frozenset[Value] | None:
        """The values that must be saved to recompute a value; None where it cannot be recomputed."""
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
        """The values that must be saved to run a node again; None where that is impossible."""
        if node.op is not VIEW and not is_element_wise(node):
            return None
        parts = [self.sources(operand) for operand in node.operands]
        found: frozenset[Value] | None = None if None in parts else frozenset().union(*parts)  # type: ignore[arg-type]
        return None if found is None or len(found) > FEW else found

    def is_copied(self, value: Value) -> bool:
        """Whether a copy is saved. Inputs that eager would not save might be modified before backward, which would be
        an error here but not in eager: the bias of a batch norm is one."""
        if value.node is not None or self.written is None:
            return False
        return value in self.written or value not in self.read_directly


def late_as_can_be(graph: Graph, first: Iterable[Node], nodes: Mapping[Node, Node]) -> list[Node]:
    """Schedules the nodes: `first` in their order, each other node right before its first reader. Otherwise the
    recomputed values of all layers would be computed at the beginning and kept until they are read."""
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


def with_shape_stand_in(node: Node, other: Value) -> Node:
    """The node with another value as the operand that it reads only for its shape."""
    at = SHAPE_ONLY[node.op.name]
    made = Node(node.op, (*node.args[:at], other, *node.args[at + 1 :]), node.kwargs, node.line)
    made.results = node.results
    return made


def is_always_again(node: Node) -> bool:
    """A view, or a constant: an output of the program could be modified before it is read."""
    return node.op is VIEW or not node.operands and not is_random(node)


def keeps_operands(value: Value) -> bool:
    target = target_of(value.type.device)
    return target is not None and target.keeps_operands


def is_element_wise(node: Node) -> bool:
    return isinstance(node.op.rule, Pointwise) and why_not_loop(node) is None


def read_by(node: Node) -> list[Value]:
    """The operands whose elements are read."""
    shape_only = SHAPE_ONLY.get(node.op.name)
    return [value for at, arg in enumerate(node.args) if at != shape_only for value in values_in(arg)] + values_in(
        tuple(node.kwargs.values())
    )


def with_sources(value: Value) -> Iterator[Value]:
    """A value and, if it is a view, its bases."""
    yield value
    while value.node is not None and value.node.op is VIEW:
        value = value.node.args[0]
        yield value
