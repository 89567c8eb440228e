"""Reads of builtin containers that bypass the methods of subclasses.

    class Shifted(list):
        def __getitem__(self, at): return list.__getitem__(self, at) + 100

    elements_of(Shifted([1, 2]))        1, 2

Capture looks into containers on its own account: to guard them, to rebuild them, to find live numbers in them. The
methods of a subclass must not run then: eager would not run them, and they may have effects or return other elements.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Iterable, Iterator
from typing import Any

BASES = (list, collections.OrderedDict, dict, tuple, set, frozenset, collections.deque)
EXACT = frozenset(BASES)


def base_of(container: Any) -> type:
    kind = type(container)
    return kind if kind in EXACT else next(base for base in BASES if issubclass(kind, base))


def elements_of(container: Any) -> Iterator[Any]:
    """What a list, tuple, set or deque holds; the keys of a dictionary."""
    if type(container) in EXACT or not issubclass(type(container), BASES):
        return iter(container)
    return base_of(container).__iter__(container)


def items_of(table: Any) -> Iterable[tuple[Any, Any]]:
    if issubclass(type(table), collections.OrderedDict):
        return collections.OrderedDict.items(table)
    return dict.items(table) if issubclass(type(table), dict) else table.items()


def has_key(table: Any, key: Any) -> bool:
    return dict.__contains__(table, key) if issubclass(type(table), dict) else key in table


def length_of(container: Any) -> int:
    return (
        len(container) if issubclass(type(container), types.MappingProxyType) else base_of(container).__len__(container)
    )
