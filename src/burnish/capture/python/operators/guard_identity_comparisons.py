"""Objects that C code compares or hashes by their address: guards on which of them are the same.

    item in items, items.count(item), [item] == items

The answer for another object of the same type may be another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from ...engine.container_changes import is_constant_key
from ...guards.container_reads_past_overrides import elements_of, items_of
from ...guards.set_iteration_order import ByIdentity, remembered
from ...numbers import numpy_tables
from ...numbers.live_scalars import Live
from .value_kinds import BUILTIN_CONTAINERS, SIMPLE, python_method

DEEPEST = 10


class OneOf:
    """Whether a value is one of these objects."""

    __name__ = "is_one_of"

    def __init__(self, objects: list):
        self.remembered = {id(each): remembered(each) for each in objects}

    def __call__(self, value: Any) -> bool:
        found = self.remembered.get(id(value), MISSED)
        return found is value or type(found) is ByIdentity and found() is value


MISSED = object()


def guard_comparison(m: Any, left: Any, right: Any) -> None:
    """Guard which objects in ``left`` are the same as those in ``right``. Guards hold on what the containers had
    before."""
    found = by_kind(right)
    if not found:
        return
    others = by_kind(left)
    for kind in found.keys() & others.keys():
        objects = [*{id(each): each for each in (*found[kind], *others[kind])}.values()]
        if not issubclass(kind, torch.Tensor):
            m.heap.identity_matters.add(kind)
        fixed = [each for each in objects if is_fixed(m, each, (left, right))]
        for each in objects:
            origin = m.heap.origin_of(each)
            if origin is None or origin.source.is_pinned:
                continue
            if any(each is other for other in fixed):
                m.heap.guard_answer(OneOf([each]), origin.source)
            elif fixed:
                m.heap.guard_answer(OneOf(fixed), origin.source, answer=False)


def guard_elements(m: Any, operation: Any, *containers: Any) -> None:
    """C code is about to compare the elements by methods of theirs in C: guard which members of an enumeration of C++
    they are, and stop for other objects, as no guard covers what their methods read."""
    for value in {id(each): each for container in containers for each in elements(container)}.values():
        kind = type(value)
        if kind.__eq__ is object.__eq__ or issubclass(kind, (torch.Tensor, type)) or kind in numpy_tables.NUMBERS:
            continue
        origin = m.heap.origin_of(value)
        if origin is None or origin.source.is_pinned or python_method(m, value, "__eq__"):
            continue
        if any(value is member for member in getattr(kind, "__members__", {}).values()):
            m.heap.guard_answer(OneOf([value]), origin.source)
        else:
            m.check_readable(operation, value)


def elements(value: Any, depth: int = 0) -> Iterator[Any]:
    """What is in ``value``, or itself, without containers."""
    if type(value) in SIMPLE or issubclass(type(value), Live):
        return
    if not issubclass(type(value), BUILTIN_CONTAINERS):
        yield value
    elif depth < DEEPEST:
        parts = itertools.chain.from_iterable(items_of(value)) if issubclass(type(value), dict) else elements_of(value)
        for part in list(parts):
            yield from elements(part, depth + 1)


def is_fixed(m: Any, value: Any, containers: tuple) -> bool:
    """Whether a guard demands the same object, without a source for it: it is an element of a set from outside."""
    origin = m.heap.origin_of(value)
    if id(value) in m.heap.in_sets or origin is not None and origin.source.is_pinned:
        return True
    return any(
        issubclass(type(items), frozenset)
        and m.heap.origin_of(items) is not None
        and any(value is each for each in frozenset.__iter__(items))
        for items in containers
    )


def by_kind(value: Any) -> dict[type, list]:
    found: dict[type, list] = {}
    for each in compared(value):
        found.setdefault(type(each), []).append(each)
    return found


def compared(value: Any, depth: int = 0, is_hashed: bool = True) -> Iterator[Any]:
    """The objects in ``value``, and itself, whose address decides."""
    kind = type(value)
    if kind in SIMPLE or issubclass(kind, (Live, type)):
        return
    if not issubclass(kind, BUILTIN_CONTAINERS):
        is_by_address = kind.__eq__ is object.__eq__ or is_hashed and issubclass(kind, torch.Tensor)
        if is_by_address and not is_constant_key(value):
            yield value
    elif depth < DEEPEST:
        is_hashed = is_hashed and issubclass(kind, (set, frozenset))
        parts = itertools.chain.from_iterable(items_of(value)) if issubclass(kind, dict) else elements_of(value)
        for part in list(parts):
            yield from compared(part, depth + 1, is_hashed)
