"""Moves checks of data-dependent errors before in-place writes of inputs; dead nodes that may raise become checks.

    r = aten.index_copy c, 2, i, k              check any(i < 0 or i >= 64)
    z = aten.embedding w, i            =>       r = aten.index_copy c, 2, i, k
    write c <- r

A run that raises must not have written anything: the caller then runs the program again in eager mode, which writes
and raises as it should. So a step that stores into an input must come after every step that may raise. A check is
placed as soon as its operand is available, and the operator itself then no longer counts as one that may raise. What a
few numbers of inputs are enough for is computed first. So the indices of all KV caches, which a model computes layer by
layer, are checked before any cache is written, and all layers write in place.

So are Python's numbers that are computed from them, such as `1 / (1 - beta**step)`, which raise by themselves. Those
that do not raise come with them: Python between two kernels would cost a call for each.

A result without readers is replaced by its check:

    y = aten.floor_divide x, d                  check any(d == 0)
    return x                           =>       return x
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ...ir.error_check_nodes import add_check, conditions_of, covers, may_fail
from ...ir.frozen_values import is_random
from ...ir.graph import Graph, Node, Value, map_values
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import CHECK, VIEW
from ...ops.elementwise.python_number_operators import ITEM, NUMBER
from ...ops.error_conditions import Condition, InRange, NotZero
from ...ops.operator_record import Pointwise
from ...ops.shapes.element_from_index_rules import IndexFunction
from ...tensors.tensor_types import NumberType

FEW = 64
"""Most elements of a value that is computed first."""


def hoist_error_checks(graph: Graph) -> Graph:
    """Returns the graph itself where nothing has to be checked early."""
    failing = {node: found for node in graph.nodes if node.results and (found := conditions_of(node))}
    late = writing_or_after(graph)
    numbers = [node.results[0] for node in late if node.op is NUMBER]
    if not failing and not numbers:
        return graph
    read = {value for node in graph.nodes for value in node.operands}
    read.update(graph.leaving_values())
    dead = {node for node in failing if read.isdisjoint(node.results) and not is_random(node)}
    early = [node for node in late if node in failing and node not in dead]
    return ErrorCheckHoister(graph, failing, dead, early, numbers).run() if dead or early or numbers else graph


def writing_or_after(graph: Graph) -> list[Node]:
    """The nodes from the first one on that produces a value written to an input."""
    makers = {write.value.node for write in graph.writes}
    first = next((k for k, node in enumerate(graph.nodes) if node in makers), len(graph.nodes))
    return graph.nodes[first:]


def computed_first(values: Iterable[Value]) -> set[Node]:
    """The nodes behind those values that need no more than a few numbers of inputs."""
    found: set[Node] = set()
    for value in values:
        behind: set[Node] = set()
        left = [value]
        while left:
            node = left.pop().node
            if node is None or node in behind or node in found:
                continue
            if not is_little_work(node):
                break
            behind.add(node)
            left += node.operands
        else:
            found |= behind
    return found


def numbers_together(nodes: Sequence[Node]) -> list[Node]:
    """Tensors are computed together, such as all counts of an optimizer, before Python reads numbers from them. So are
    the tensors that need these numbers, before Python reads from those."""
    turn: dict[Value | None, int] = {}
    for node in nodes:
        last = max((turn.get(value, 0) for value in node.operands), default=0)
        turn[node.results[0]] = last + (last % 2 != is_number(node))
    return sorted(nodes, key=lambda node: turn[node.results[0]])


def is_number(node: Node) -> bool:
    return node.op is NUMBER or node.op.name == ITEM


def is_little_work(node: Node) -> bool:
    (result, *others) = node.results or (None,)
    if is_number(node):
        return True
    is_computed = node.op is VIEW or isinstance(node.op.rule, Pointwise | IndexFunction)
    is_little = (
        result is not None and not others and not isinstance(result.type, NumberType) and result.type.numel <= FEW
    )
    return is_computed and is_little and not is_random(node) and not may_fail(node)


class ErrorCheckHoister(Rewriter):
    def __init__(
        self,
        graph: Graph,
        failing: dict[Node, tuple[Condition, ...]],
        dead: set[Node],
        early: list[Node],
        numbers: list[Value],
    ):
        super().__init__(graph)
        self.failing, self.dead = failing, dead
        self.waiting: dict[Value, dict[Condition, str]] = defaultdict(dict)
        """By operand: the conditions to check as soon as the operand is available, and the operator they belong to."""
        for node in early:
            for condition in failing[node]:
                self.waiting[subject(condition)].setdefault(condition, node.op.name)
        self.first = computed_first([*self.waiting, *numbers])

    def begin(self) -> None:
        for value in self.old.inputs:
            self.check(value)
        for node in numbers_together([node for node in self.old.nodes if node in self.first]):
            self.build.line = node.line
            args = map_values(node.args, self.env.__getitem__)
            kwargs = {name: map_values(arg, self.env.__getitem__) for name, arg in node.kwargs.items()}
            (self.env[node.results[0]],) = self.copy_node(node, args, kwargs)  # type: ignore[index]
            self.check(node.results[0])  # type: ignore[arg-type]

    def check(self, value: Value) -> None:
        for condition, name in self.waiting.get(value, {}).items():
            add_check(self.build, seen_as(condition, self.env[value]), name)

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node in self.first:
            return self.env[node.results[0]]  # type: ignore[index]
        if node in self.dead:
            for condition in self.failing[node]:
                add_check(
                    self.build, seen_as(condition, self.env[subject(condition)]), node.op.name, args, kwargs.items()
                )
            return tuple(None for _ in node.results)
        if self.waiting.keys().isdisjoint(node.results):
            return None
        made = self.copy_node(node, args, kwargs)
        for old, new in zip(node.results, made, strict=True):
            if old is not None:
                self.env[old] = new
                self.check(old)
        return made


def subject(condition: Condition) -> Value:
    """The value that a condition tests."""
    if isinstance(condition, InRange):
        return condition.index
    return condition.divisor if isinstance(condition, NotZero) else condition.value


def seen_as(condition: Condition, value: Value) -> Condition:
    """The same condition on another value."""
    if isinstance(condition, InRange):
        return InRange(value, condition.low, condition.size, condition.ignored)
    return type(condition)(value)


def last_that_may_fail(nodes: Sequence[Node | None]) -> int:
    """The number of the last step that may raise, or -1. `nodes` has the node of each step that is a call. An operator
    does not raise if all its conditions are checked earlier."""
    last, checked = -1, set[tuple]()
    for number, node in enumerate(nodes):
        if node is None or not may_fail(node):
            continue
        if node.op is CHECK:
            checked.add(node.args[4])
        elif is_checked(node, checked):
            continue
        last = number
    return last


def is_checked(node: Node, checked: Iterable[tuple]) -> bool:
    conditions = conditions_of(node)
    return conditions is not None and all(covers(condition) in checked for condition in conditions)
