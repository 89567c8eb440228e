"""Torch's loop operators as nodes of graphs that are run by calling Python.

loop = LoopOperator(torch.ops.higher_order.scan, [step])
loop([start], [xs], (weight,))                  (last carry, outputs of all steps)

`count` numbers among the arguments, the last ones, are given to each function after its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class LoopOperator:
    """A callable with a name that a graph can print."""

    stands_alone = True
    """In a graph it runs as it is: see ``compiler.uncompiled_calls``."""

    def __init__(self, operator: Callable[..., Any], functions: Sequence[Callable[..., Any]], count: int = 0):
        self.operator, self.functions, self.count = operator, list(functions), count
        self.__name__ = self.__qualname__ = str(getattr(operator, "_name", "loop"))
        self.__module__ = __name__

    def __call__(self, *given: Any) -> Any:
        end = len(given) - self.count
        return self.operator(*[with_numbers(function, given[end:]) for function in self.functions], *given[:end])


def with_numbers(function: Callable[..., Any], numbers: Sequence[Any]) -> Callable[..., Any]:
    """The function, with these as its last arguments."""
    return function if not numbers else lambda *tensors: function(*tensors, *numbers)
