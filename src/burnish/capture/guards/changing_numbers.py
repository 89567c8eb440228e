"""Recompiles for changed numbers: a number that differed between two runs becomes a live scalar.

A number found in an attribute, a dictionary, a list, a global or an argument is at first a constant, guarded by value.
A counter would then be compiled again on every run. So when no segment fits, the numbers that made the difference are
looked up, and the next trace takes them as live scalars (``live_scalars``), with a guard on their type only:

    self.seen += 1        first run: seen == 0 is guarded;  second: 1, which differs, so from now on seen is an int
    lr = group["lr"]      the same, but known beforehand: schedulers change the learning rate
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import FunctionType
from typing import Any

from ..numbers import live_scalars, numpy_tables
from .guards import MISSING_ERRORS, READERS, Guard, read
from .object_sources import Source

NUMBERS = (int, float)
CHANGING_NAMES = frozenset(("lr",))


def leads_to(source: Source, changing: Iterable[tuple]) -> bool:
    """Whether one of these paths goes on from this source. A tuple may have exponentially many other paths."""
    path = source.path()
    return any(further[: len(path)] == path for further in changing)


def changed_numbers(guards: list[Guard], slots: list) -> dict[tuple, tuple[Any, Any]]:
    """The numbers that differ now from what the guards expect, by their paths (``Source.path``): before, and now. Also,
    without values, functions that are others with the same code: calls make them."""
    found: dict[tuple, tuple[Any, Any]] = {}
    values: dict[int, Any] = {}
    types = guarded_types(guards)
    for kind, source, expected in guards:
        for number, before in guarded_numbers(kind, source, expected):
            try:
                now = value_at(number, slots, values, types)
            except MISSING_ERRORS:
                continue
            if type(now) is type(before) and now != before:
                found[number.path()] = before, now
        if kind == "is" and type(expected) is FunctionType and "<locals>" in expected.__qualname__:
            assert source is not None
            try:
                other = value_at(source, slots, values, types)
            except MISSING_ERRORS:
                continue
            if other is not expected and type(other) is FunctionType and other.__code__ is expected.__code__:
                found[source.path()] = None, None
    return found


def guarded_numbers(kind: str, source: Source | None, expected: Any) -> list[tuple[Source, Any]]:
    """The numbers that a guard holds to one value, or that it holds a result of: with the values in the trace."""
    if kind == "equal" and source is not None:
        is_number = type(expected) in NUMBERS or type(expected) in numpy_tables.NUMBERS
        return [(source, expected)] if is_number else []
    if kind == "length" and source is not None:
        return [(source.child("count"), expected)]
    if kind != "outcome" or expected[0].operation is not live_scalars.same_value:
        return []
    return [leaf.operands for leaf in live_scalars.leaves_of(expected[0]) if len(leaf.operands) == 2]


def guarded_types(guards: list[Guard]) -> dict[int, type]:
    """The types that guards expect of the values at sources, by the source's id."""
    return {
        id(guard.source): guard.expected if guard.kind == "type" else type(guard.expected)
        for guard in guards
        if guard.kind in ("type", "is")
    }


def value_at(source: Source, slots: list, values: dict[int, Any], types: dict[int, type]) -> Any:
    """The value at a source now. An object of another type than before is not read: that may run the user's code."""
    if source.kind == "slot":
        return slots[source.key[0]]
    if source.kind == "const":
        return source.key
    if id(source) not in values:
        if source.kind not in READERS or source.base is None:
            raise KeyError(source.kind)
        base = value_at(source.base, slots, values, types)
        if type(base) is not types.get(id(source.base), type(base)):
            raise KeyError(source.kind)
        values[id(source)] = read(source, base)
    return values[id(source)]


MOST_LIVE = 64


def are_many(items: Collection) -> bool:
    """Whether more of them than a graph takes may be live scalars."""
    return len(items) > MOST_LIVE and sum(map(may_be_live, items)) > MOST_LIVE


def may_be_live(value: Any) -> bool:
    """Whether it is a number, or may hold some that a tuple with live scalars is read in place of."""
    return type(value) in NUMBERS or issubclass(type(value), tuple)
