"""Symbolic scalars: Python numbers with which user code computes during the trace, and that may change between calls.

    -ctx.strength * grad        =>        number = number 'operator.neg', strength
                                          mul    = aten.mul.Tensor grad, number

`lower.trace.number_inputs` has stand-ins for such numbers, plain floats. Traced user code (a custom autograd function)
gets these instead: arithmetic on them is recorded. Where the number itself decides something (a branch, a size, a
text), the trace ends with `NumberLost`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir.untraceable_graph import NumberLost

if TYPE_CHECKING:
    from .number_inputs import NumberInputs


class SymbolicScalar(float):
    """A stand-in that refers to its trace."""

    __slots__ = ("numbers",)
    numbers: NumberInputs


def with_symbolic_scalars(numbers: NumberInputs, tree: Any) -> Any:
    """The arguments of a call, with stand-ins as `SymbolicScalar`."""
    if isinstance(tree, (tuple, list)):
        return type(tree)(with_symbolic_scalars(numbers, part) for part in tree)
    if isinstance(tree, dict):
        return {name: with_symbolic_scalars(numbers, part) for name, part in tree.items()}
    return wrapped(numbers, tree) if isinstance(tree, float) and numbers.is_known(tree) else tree


def wrapped(numbers: NumberInputs, x: float) -> SymbolicScalar:
    made = SymbolicScalar(x)
    made.numbers = numbers
    return made


def arithmetic(operation: Callable, turned: bool = False) -> Callable:
    def method(self: SymbolicScalar, *others: Any) -> Any:
        if not all(isinstance(other, (int, float)) for other in others):
            return NotImplemented  # a tensor, which knows what to do with a float
        operands = [float(x) if isinstance(x, SymbolicScalar) else x for x in (self, *others)]
        found = self.numbers.call(operation, tuple(reversed(operands) if turned else operands), {})
        return wrapped(self.numbers, found)

    return method


def decides(name: str) -> Callable:
    def method(self: SymbolicScalar, *others: Any) -> Any:
        raise NumberLost(f"a number that may be another one in the next call decides something: {name}")

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(SymbolicScalar, f"__{_name}__", arithmetic(getattr(operator, _name)))
    setattr(SymbolicScalar, f"__r{_name}__", arithmetic(getattr(operator, _name), turned=True))
for _name in ("neg", "pos", "abs"):
    setattr(SymbolicScalar, f"__{_name}__", arithmetic(getattr(operator, _name)))
for _name in "lt le gt ge eq ne bool int round trunc floor ceil hash repr str format divmod rdivmod".split():
    setattr(SymbolicScalar, f"__{_name}__", decides(_name))
