"""Elements that follow from where they stand: ranges, constants, unit matrices, triangles.

    @located("aten.arange.default")
    def arange(at, end):
        return cast(at.index[0], at.dtype)

    @located("aten.tril.default", reads=True)
    def tril(at, x, diagonal=0):
        return select(at.index[-1] - at.index[-2] <= diagonal, x, 0)

A rule gets the place, then the operator's arguments: of tensors, which have the result's shape, their element there. In
loops these cost no memory: a mask of ones below a diagonal is a comparison of two loop variables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..operator_record import record
from ..scalar_ir import Scalar


@dataclass(frozen=True, slots=True)
class ElementPosition:
    """Of an element of the result."""

    index: tuple[Scalar, ...]
    """An i64 for each dimension."""
    dtype: str
    """That of the result: what a rule is to give."""


@dataclass(frozen=True, slots=True)
class Located:
    """A record's rule: the element at a place is `rule(place, *args)`."""

    rule: Callable[..., Scalar]
    reads: bool = False
    """Whether the elements of tensors matter; else they only say what the result is like."""


def located(*names: str, reads: bool = False) -> Callable[[Callable], Callable]:
    """Register how an element follows from its place."""

    def register(rule: Callable) -> Callable:
        for name in names:
            record(name).rule = Located(rule, reads)  # type: ignore[assignment]
        return rule

    return register


__all__ = ["Located", "ElementPosition", "located"]
