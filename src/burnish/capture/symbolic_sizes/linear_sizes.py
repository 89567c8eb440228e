"""Numbers that are a symbol times a constant, plus a constant, whatever the symbol is: by their operations, and not by
their values at a few points, where a remainder is the number itself."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..numbers import live_scalars


class LeafSize(NamedTuple):
    """What an expression reads, in terms of a symbol."""

    symbol: int
    added: int = 0
    factor: int = 1

    def of(self, size: int) -> int:
        """`size`: the symbol's value."""
        return self.factor * size + self.added


def multiple_of_symbol(expression: Any, leaves: Mapping[int, LeafSize]) -> LeafSize | None:
    """A multiple of a symbol, plus a number; None of any other expression. `leaves`: what is known, by id."""
    found = linear(expression, leaves)
    return found if found is not None and found.factor > 0 else None


def linear(expression: Any, leaves: Mapping[int, LeafSize]) -> LeafSize | None:
    """The same with any factor: 0 of a constant."""
    if not isinstance(expression, live_scalars.Expression):
        return LeafSize(-1, expression, 0) if type(expression) is int else None
    if expression.operation is None or expression.in_graph or id(expression) in leaves:
        return leaves.get(id(expression))
    parts = [linear(operand, leaves) for operand in expression.operands]
    if None in parts:
        return None
    operation, one, other = expression.operation, parts[0], parts[-1]
    if operation is operator.neg:
        return LeafSize(one.symbol, -one.added, -one.factor)  # type: ignore[union-attr]
    if len(parts) != 2 or 0 not in (one.factor, other.factor) and one.symbol != other.symbol:  # type: ignore[union-attr]
        return None
    symbol = max(one.symbol, other.symbol)  # type: ignore[union-attr]
    if operation in (operator.add, operator.sub):
        return LeafSize(symbol, operation(one.added, other.added), operation(one.factor, other.factor))  # type: ignore[union-attr]
    if operation is operator.mul and not (one.factor and other.factor):  # type: ignore[union-attr]
        return LeafSize(symbol, one.added * other.added, one.factor * other.added + other.factor * one.added)  # type: ignore[union-attr]
    return None
