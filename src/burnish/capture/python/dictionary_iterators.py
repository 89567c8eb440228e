"""Iterators over dictionaries and sets: finds the table behind an iterator, and its kind of iteration."""

from __future__ import annotations

import collections
from typing import Any


def keys_of(snapshot: list, table: Any) -> list:
    return [k for k, _ in snapshot] if isinstance(table, dict) else snapshot


def ordered_view(table: collections.OrderedDict, iterator: Any) -> tuple[Any, Any] | None:
    left = iterator.__reduce__()[1][0]
    ordered = collections.OrderedDict
    for step in (iter, reversed):
        for view in (ordered.keys, ordered.values, ordered.items):
            rest = list(step(view(table)))[len(table) - len(left) :]
            if all(a is b or type(a) is tuple and a == b for a, b in zip(left, rest, strict=True)):
                return view, step
    return None


def advanced(iterator: Any, steps: int) -> Any:
    for _ in range(steps):
        next(iterator)
    return iterator


def itself(table: Any) -> Any:
    return table


TABLE_ITERATORS: dict[type, tuple[Any, Any]] = {
    type(step(view({}))): (view, step) for view in (dict.keys, dict.values, dict.items) for step in (iter, reversed)
} | {type(iter(set())): (itself, iter), type(iter(collections.OrderedDict())): (None, None)}
