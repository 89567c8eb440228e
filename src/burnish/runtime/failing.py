"""Graphs that raise where plain Python does not: given up after a few calls, so that not every call runs twice.

    failing = Failing.of(segment)      stands in for the segment's graph from here on, until the graph runs once
    failing.in_a_row += 1

A graph that runs again costs nothing for it. Errors that the program meets as well are not counted: they are of the
data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .segments import Segment

MOST_IN_A_ROW = 3


class Failing:
    def __init__(self, segment: Segment, graph: Callable):
        self.segment, self.graph, self.in_a_row = segment, graph, 0

    @staticmethod
    def of(segment: Segment) -> Failing:
        graph = segment.graph
        assert graph is not None
        if isinstance(graph, Failing):
            return graph
        segment.graph = made = Failing(segment, graph)
        return made

    def __call__(self, *inputs: Any) -> Any:
        outputs = self.graph(*inputs)
        if self.segment.graph is self:
            self.segment.graph = self.graph
        return outputs
