"""Whether a program for many sizes is right for sizes that are far from those it was made from.

    check = Check(gm, space, examples, gradients, open_floats)
    check((4096,))              the graph is traced there, and the trace must be what formulas say
    check.is_special((1,))      sizes of 0 and 1 say nothing of those around them
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from .. import events
from ..ir.untraceable import Untraceable
from ..tensors.sizes import NUMBER, Formula, NoFormula, Point, Space

Examples = Callable[[Point], list[Any]]
"""The inputs of a graph at a point of a space: tensors of those sizes whose data nobody reads, and numbers."""


class Check:
    """Whether the trace of a graph for other sizes is what formulas, found at the points of the space, say."""

    def __init__(self, gm: GraphModule, space: Space, examples: Examples, gradients: bool, open_floats: bool):
        self.gm, self.space, self.examples = gm, space, examples
        self.gradients, self.open_floats = gradients, open_floats
        self.pattern: list[str] | None = None
        self.formulas: set[Formula] = set()
        self.numbers: list[int | Formula] = []

    def is_special(self, point: Point) -> bool:
        """Whether something in the trace has a size of 0 or 1 there. Such sizes mean other things than those around."""
        if self.pattern is None:
            try:
                self.learn()
            except (Untraceable, NoFormula):
                return True
        return any(formula.at(point) <= 1 for formula in self.formulas)

    def learn(self) -> None:
        texts = [self.text(point) for point in self.space.points]
        pieces = [NUMBER.split(text) for text in texts]
        if any(piece != pieces[0] for piece in pieces):
            raise NoFormula("the trace is another one for other sizes")
        self.pattern = pieces[0]
        self.numbers = [self.space.fit(list(map(int, values)))
                        for values in zip(*map(NUMBER.findall, texts), strict=True)]
        self.formulas = {number for number in self.numbers if isinstance(number, Formula)}

    def text(self, point: Point) -> str:
        # Columns are as wide as the numbers in them.
        from ..lower.trace import trace

        return re.sub(" +", " ", str(
            trace(self.gm, self.examples(point), self.gradients, self.open_floats).graph))

    def __call__(self, point: Point) -> bool:
        try:
            if self.pattern is None:
                self.learn()
            text = self.text(point)
        except (Untraceable, NoFormula):
            return False
        expected = [n if isinstance(n, int) else n.at(point) for n in self.numbers]
        is_right = NUMBER.split(text) == self.pattern and list(map(int, NUMBER.findall(text))) == expected
        events.emit("guards.sizes", text=f"{'holds' if is_right else 'does not hold'} for "
                                 f"{', '.join(map('{} = {}'.format, self.space.names, point))}")
        return is_right
