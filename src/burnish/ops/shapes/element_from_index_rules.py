"""Element rules that compute a result from its index: ranges, constants, eye, tril and triu.

    @index_function("aten.arange.default")
    def arange(at, end):
        return cast(at.index[0], at.dtype)

    @index_function("aten.tril.default", reads=True)
    def tril(at, x, diagonal=0):
        return select(at.index[-1] - at.index[-2] <= diagonal, x, 0)

A rule takes the position, then the operator's arguments; of tensors, which have the result's shape, their element
there. In loops this needs no memory: a triangular mask is a comparison of two loop variables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..operator_record import registers
from ..scalar_ir import Scalar


@dataclass(frozen=True, slots=True)
class ElementPosition:
    """The position of an element of the result."""

    index: tuple[Scalar, ...]
    """An i64 for each dimension."""
    dtype: str
    """The dtype of the result, which the rule must return."""


@dataclass(frozen=True, slots=True)
class IndexFunction:
    """A record's rule: the element at a position is `rule(position, *args)`."""

    rule: Callable[..., Scalar]
    reads: bool = False
    """Whether the rule reads elements of tensors. If not, they only give the result's type."""


def index_function(*names: str, reads: bool = False) -> Callable[[Callable], Callable]:
    """Register the rule that computes an element from its position."""
    return registers(names, "rule", lambda rule: IndexFunction(rule, reads))
