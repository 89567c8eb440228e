"""Undo log: the content of objects before a tentative call changed them, to be put back.

    log = UndoLog(heap)
    log.will_change(module)          before ``module.count += 1``; False if its content cannot be put back
    log.undo()                       the attribute, and the heap's record that it was written

Only the first change of an object is noted, with a shallow copy of its content.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from types import CellType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import torch

from ...engine.object_lifetimes import NO_ENTRIES
from ...guards import set_iteration_order
from ...interpreter.frames import UNBOUND, cell_value
from ...interpreter.reads_past_overrides import dict_of

TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
"""The containers in which a module keeps its state."""
CONTAINERS = (dict, list, set, collections.deque)
WRITTEN = ("written", "earlier", "order", "appended_from", "appended_to", "is_changed_here", "steps", "after_steps")
"""What the heap notes about writes to an object."""


class UndoLog:
    def __init__(self, heap: Any):
        self.heap = heap
        self.before: dict[int, tuple[Any, Any]] = {}
        """By id: a container, a cell or a dictionary of attributes, and its content."""
        self.seen: dict[int, Any] = {}
        """The objects that were noted."""
        self.records = {
            id(origin): [origin, *map(copied, (getattr(origin, name) for name in WRITTEN))]
            for origin in heap.origins.values()
            if origin.is_written or origin.is_changed_here
        }
        self.has_marked = heap.has_marked

    def will_change(self, target: Any) -> bool:
        if id(target) in self.seen:
            return True
        parts = list(parts_of(target))
        for part in parts:
            if id(part) not in self.before:
                content = content_of(part)
                if content is None:
                    return False
                self.before[id(part)] = part, content
        if parts:
            self.seen[id(target)] = target
        return bool(parts)

    def contents(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """For each changed container, what it holds now, and what it held before."""
        for part, before in self.before.values():
            if type(part) is CellType:
                yield [cell_value(part)], [cell_value(before)]
            elif isinstance(part, dict):
                yield list(dict.values(part)), [value for _, value in before]
            else:
                yield list(part), before[1] if isinstance(part, set) else before

    def undo(self) -> None:
        for part, content in self.before.values():
            put_back(part, content)
        heap = self.heap
        heap.has_marked = self.has_marked
        for origin in heap.origins.values():
            known = self.records.get(id(origin))
            if known is not None:
                for name, value in zip(WRITTEN, known[1:], strict=True):
                    setattr(origin, name, value)
            elif origin.is_written or origin.is_changed_here:
                origin.written = origin.earlier = NO_ENTRIES
                origin.order = origin.appended_from = origin.appended_to = None
                origin.is_changed_here, origin.steps, origin.after_steps = False, (), None


def copied(value: Any) -> Any:
    return dict(value) if type(value) is dict else value


def parts_of(target: Any) -> Iterator[Any]:
    """The containers that hold the state of an object. None for an object with state of another kind."""
    if isinstance(target, (CellType, *CONTAINERS)):
        yield target
    elif isinstance(target, (ModuleType, FunctionType)):
        yield target.__dict__
    elif not isinstance(target, (torch.Tensor, type)) and not has_fields(type(target)):
        table = dict_of(target)
        if type(table) is dict:
            yield table
            if isinstance(target, torch.nn.Module):
                yield from (table[name] for name in TABLES if isinstance(table.get(name), CONTAINERS))


def has_fields(kind: type) -> bool:
    """Whether it has ``__slots__``, or is made in C, with state of its own."""
    return not kind.__flags__ & (1 << 9) or any(
        isinstance(value, MemberDescriptorType) for base in kind.__mro__ for value in vars(base).values()
    )


def content_of(part: Any) -> Any:
    if type(part) is CellType:
        return CellType() if cell_value(part) is UNBOUND else CellType(part.cell_contents)
    if isinstance(part, dict):
        return list(dict.items(part))
    if isinstance(part, set):
        steps = set_iteration_order.how_to_make(part)
        return None if steps is None else (steps, list(set.__iter__(part)))
    return list(part)


def put_back(part: Any, content: Any) -> None:
    if type(part) is CellType:
        if cell_value(content) is not UNBOUND:
            part.cell_contents = content.cell_contents
        elif cell_value(part) is not UNBOUND:
            del part.cell_contents
    elif isinstance(part, dict):
        put_back_items(part, content)
    elif isinstance(part, list):
        list.__setitem__(part, slice(None), content)
    elif isinstance(part, set):
        set.clear(part)
        set_iteration_order.fill(part, *content)
    else:
        collections.deque.clear(part)
        collections.deque.extend(part, content)


def put_back_items(part: dict, content: list[tuple[Any, Any]]) -> None:
    """Entries that have not changed are not touched: the dictionary may be the globals of a module."""
    now = list(dict.items(part))
    if [key for key, _ in now] == [key for key, _ in content]:
        for (key, value), (_, old) in zip(now, content, strict=True):
            if value is not old:
                dict.__setitem__(part, key, old)
        return
    dict.clear(part)
    for key, value in content:
        dict.__setitem__(part, key, value)
