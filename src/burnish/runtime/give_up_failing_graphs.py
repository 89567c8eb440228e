"""Give up compiled graphs that raise repeatedly where eager does not, so that not every call runs twice.

    failing = Failing.of(segment)      replaces the segment's graph until the graph succeeds once
    failing.in_a_row += 1

A graph that succeeds again has no further cost. Errors that eager raises as well are not counted: they come from the
data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .segment_records import Segment

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
