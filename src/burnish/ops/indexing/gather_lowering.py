"""Lowering of gathers (embedding, index_select, gather, index) to indirect loads in loops.

    @gather_rule("aten.index_select.default")
    def index_select(x, dim, index):
        return x, tuple(IndirectIndex(index, (dim,)) if k == dim else k for k in range(x.ndim))

For each dimension of the source, a rule says where the index comes from: the number of a dimension of the result, or an
index tensor. Loops load the elements where they use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..operator_record import registers


@dataclass(frozen=True, slots=True)
class IndirectIndex:
    """The element of `index` at the result's dimensions `dims`, one for each of its own."""

    index: Any
    dims: tuple[int, ...]
    wraps: bool = False
    """Whether negative indices count from the end; otherwise eager raises for them."""


Gather = tuple[Any, tuple[IndirectIndex | int, ...]]


@dataclass(frozen=True, slots=True)
class GatherRule:
    """A record's rule: returns the source, and for each of its dimensions an `IndirectIndex` or a dimension of the
    result."""

    rule: Callable[..., Gather]
    is_slow: bool = False
    """Whether loops are faster than eager's kernel even if nothing is fused with the gather."""


def gather_rule(*names: str, is_slow: bool = False) -> Callable[[Callable], Callable]:
    """Register the gather rule of an operator."""
    return registers(names, "rule", lambda rule: GatherRule(rule, is_slow))
