"""Torch's loop operators as nodes of graphs that are run by calling Python.

loop = LoopOperator(torch.ops.higher_order.scan, [step])
loop([start], [xs], (weight,))                  (last carry, outputs of all steps)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class LoopOperator:
    """A callable with a name that a graph can print."""

    stands_alone = True
    """In a graph it runs as it is: see ``tensor_object_state.stands_alone``."""

    def __init__(self, operator: Callable[..., Any], functions: Sequence[Callable[..., Any]]):
        self.operator, self.functions = operator, list(functions)
        self.__name__ = self.__qualname__ = str(getattr(operator, "_name", "loop"))
        self.__module__ = __name__

    def __call__(self, *given: Any) -> Any:
        return self.operator(*self.functions, *given)
