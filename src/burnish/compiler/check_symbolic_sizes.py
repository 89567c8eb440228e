"""Checks whether a program for symbolic sizes is right for sizes far from those it was compiled from.

    check = Check(gm, space, examples, gradients, live_scalar_types)
    check((4096,))              traces the graph there, and compares the trace with the formulas
    check.is_special((1,))      whether a size of 0 or 1 occurs there, or two are equal that differ elsewhere: such
                                sizes say nothing about others

A range of sizes is checked when the program is compiled, and is saved with it: its `Reach`. A sequence that grows with
every call stays within it for a while, and nothing is traced again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import GraphModule

from .. import events
from ..concurrency.outside_errors import reraise_from_outside
from ..ir.graph import Graph
from ..ir.untraceable_graph import Untraceable
from ..runtime.program.symbolic_size_program import range_of
from ..tensors.fit_size_formulas import NUMBER, Formula, NoFormula, Space, SpecialSizes
from ..tensors.size_quotients import Point, Quotient
from ..tensors.tensor_types import TensorType

Examples = Callable[[Point], list[Any]]
"""The inputs of a graph at a point of a space: tensors of those sizes whose data is never read, and numbers."""


FAR = (16, 4)
"""Factors for the size that was seen, tried when a program with one symbolic size is compiled: the first that holds."""

INVALID_SIZE_ERRORS = (ValueError, RuntimeError, IndexError)
"""The errors for a size that the program cannot have."""

NO_TRACE_ERRORS = (Untraceable, NoFormula, *INVALID_SIZE_ERRORS)
"""The errors where there is no trace of this program for a size."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The range of sizes for which a program is known to be right, and the special ones in it."""

    special: SpecialSizes
    least: Point
    most: Point
    points: tuple[Point, ...]
    quotients: tuple[Quotient, ...]
    """Of the space that the program was compiled in. Others may be equal at its points, and differ elsewhere."""


class Check:
    """Compares the trace of a graph for other sizes with the formulas found at the points of the space."""

    def __init__(
        self, gm: GraphModule, space: Space, examples: Examples, gradients: bool, live_scalar_types: tuple[type, ...]
    ):
        self.gm, self.space, self.examples = gm, space, examples
        self.traced: dict[Point, Graph] = {}
        """Those of the points that formulas are found from, until they are found."""
        self.gradients, self.live_scalar_types = gradients, live_scalar_types
        self.is_at_every_size = False
        self.pattern: list[str] | None = None
        self.special: SpecialSizes | None = None
        self.numbers: list[int | Formula] = []
        self.bounds: tuple[Point, Point] | None = None
        self.conditions: tuple[Formula, ...] = ()

    def with_reach(self, reach: Reach | None) -> Check:
        """Takes over what was found out when the program was compiled."""
        if reach is not None:
            self.special, self.bounds = reach.special, (reach.least, reach.most)
            self.space = replace(self.space, points=reach.points, quotients=reach.quotients, known={})
        return self

    def is_special(self, point: Point) -> bool:
        """Whether the trace may be another one there than for the sizes around it."""
        if self.special is None:
            try:
                self.learn()
            except NO_TRACE_ERRORS as error:
                reraise_from_outside(error)
                return True
            finally:
                self.traced.clear()
        return self.special.contain(point)  # type: ignore[union-attr]

    def learn(self) -> None:
        """Finds the formulas, from the traces at the points. Of those that tell quotients apart some may have another
        trace: where windows fill a tensor, they are contiguous."""
        near, telling = list(map(self.pieces_at, self.space.points)), list(map(self.pieces_at, self.space.telling))
        if any(pieces != near[0] for pieces in near):
            raise NoFormula("the trace is another one for other sizes")
        further = [point for point, pieces in zip(self.space.telling, telling, strict=True) if pieces == near[0]]
        space = replace(self.space, points=[*self.space.points, *further], telling=(), known={})
        numbers = self.numbers_at(space.points)
        self.space = space.divided(numbers)
        self.pattern = near[0]
        self.numbers = list(map(self.space.fit, numbers))
        self.special = SpecialSizes.among([*zip(self.numbers), *self.compared()], self.space.points[0])

    def compared(self) -> Iterator[list[int | Formula]]:
        """For each node the numbers that decide what it is: its own, and its arguments and all sizes. Strides of one
        tensor and sizes of another mean nothing to each other."""
        graphs = [self.traced_at(point) for point in self.space.points]
        for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
            own = list(map(repr, nodes))
            shapes = [
                [*(value.type.shape for value in node.operands), *(value.shape for value in node.results if value)]
                for node in nodes
            ]
            arguments = [f"{text.partition(' : ')[0]} {sizes}" for text, sizes in zip(own, shapes, strict=True)]
            for texts in (own, arguments):
                yield [self.space.fit(values) for values in numbers_in(texts)]

    def pieces_at(self, point: Point) -> list[str]:
        return NUMBER.split(text_of(self.traced_at(point)))

    def numbers_at(self, points: Sequence[Point]) -> list[tuple[int, ...]]:
        """The numbers in the traces, each with its values at the points."""
        texts = [text_of(self.traced_at(point)) for point in points]
        return numbers_in(texts)

    def trace(self, point: Point) -> Graph:
        from ..lower.trace.trace_to_aten import trace

        return trace(self.gm, self.examples(point), self.gradients, self.live_scalar_types).graph

    def traced_at(self, point: Point) -> Graph:
        """The trace at a point, made once."""
        found = self.traced.get(point)
        if found is None:
            found = self.traced[point] = self.trace(point)
        return found

    def divided(self) -> Space:
        """The space with the quotients among the sizes of all results."""
        self.space = self.space.decide(self.sizes_at)
        return self.space

    def sizes_at(self, points: Sequence[Point]) -> list[tuple[int, ...]]:
        return list(sizes_in(list(map(self.traced_at, points))))

    def reach(self) -> Reach | None:
        """The range in which it holds, or None if that is unknown."""
        try:
            least, most = range_of(self.space.points)
            self.learn()
            sizes = {*self.sizes_at(self.space.points)}
            others = [values for values in self.numbers_at(self.space.points) if values not in sizes]
            if self.space.telling_point(others) is not None:
                return None  # such a number may be another quotient than the one that is found
            self.traced.clear()
            far = [tuple([factor * size for size in most]) for factor in FAR if len(most) == 1]
            most = next((point for point in far if not self.is_special(point) and self(point)), most)
        except NO_TRACE_ERRORS as error:
            reraise_from_outside(error)
            return None
        assert self.special is not None
        return Reach(self.special, least, most, tuple(self.space.points), self.space.quotients)

    def __call__(self, point: Point) -> bool:
        try:
            if self.pattern is None:
                self.learn()
            text = text_of(self.trace(point))
        except NO_TRACE_ERRORS as error:
            reraise_from_outside(error)
            return False
        finally:
            self.traced.clear()
        expected = [n if isinstance(n, int) else n.at(point) for n in self.numbers]
        is_empty = 0 in [n.at(point) for n in self.numbers if isinstance(n, Formula)]  # its strides follow other rules
        is_right = (
            not is_empty and NUMBER.split(text) == self.pattern and list(map(int, NUMBER.findall(text))) == expected
        )
        events.emit(
            "guards.sizes",
            text=f"{'holds' if is_right else 'does not hold'} for "
            f"{', '.join(map('{} = {}'.format, self.space.names, point))}",
        )
        return is_right


def sizes_in(graphs: Sequence[Graph]) -> Iterator[tuple[int, ...]]:
    """The size of each dimension of each result, in all graphs."""
    for nodes in zip(*(graph.nodes for graph in graphs), strict=False):
        for results in zip(*(node.results for node in nodes), strict=False):
            types = [result.type for result in results if result is not None and isinstance(result.type, TensorType)]
            if len(types) == len(graphs):
                yield from zip(*(type.shape for type in types), strict=False)


def numbers_in(texts: Sequence[str]) -> list[tuple[int, ...]]:
    return list(zip(*[map(int, NUMBER.findall(text)) for text in texts], strict=True))


def text_of(graph: Graph) -> str:
    # Column widths depend on the numbers in them, and so does whether each input has a line of its own.
    text = re.sub(" +", " ", str(graph))
    return text.replace("graph(\n ", "graph(", 1).replace(",\n)", ")", 1).replace(",\n ", ", ")
