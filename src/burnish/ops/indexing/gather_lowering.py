"""Results whose elements are picked by indices that are data: embeddings, selections, gathers.

    @gathered("aten.index_select.default")
    def index_select(x, dim, index):
        return x, tuple(Picked(index, (dim,)) if k == dim else k for k in range(x.ndim))

A rule says, for each dimension of the source, where the element's place in it comes from: from a dimension of the
result, by its number, or from an index tensor. Loops load such elements where they need them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..operator_record import record


@dataclass(frozen=True, slots=True)
class Picked:
    """The place is the element of `index` that `dims` of the result tell, one for each of its own dimensions."""

    index: Any
    dims: tuple[int, ...]
    wraps: bool = False
    """Whether places below 0 count from the end; else eager raises."""


Picks = tuple[Any, tuple[Picked | int, ...]]


@dataclass(frozen=True, slots=True)
class Gathered:
    """A record's rule: the source, and for each of its dimensions a `Picked`, or the dimension of the result."""

    rule: Callable[..., Picks]
    is_slow: bool = False
    """Loops are faster than eager's kernel even where nothing is computed with what is picked."""


def gathered(*names: str, is_slow: bool = False) -> Callable[[Callable], Callable]:
    """Register what an operator picks."""

    def register(rule: Callable) -> Callable:
        for name in names:
            record(name).rule = Gathered(rule, is_slow)  # type: ignore[assignment]
        return rule

    return register


__all__ = ["Gathered", "Picked", "Picks", "gathered"]
