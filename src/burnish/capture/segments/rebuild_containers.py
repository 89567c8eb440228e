"""Templates of containers: lists, tuples, dictionaries and their views, and iterators over all of these."""

from __future__ import annotations

import collections
import operator
from typing import Any

import torch

from ..engine.break_signals import Unrebuildable
from ..guards import set_iteration_order
from ..guards.container_reads_past_overrides import elements_of, length_of
from ..guards.immutable_builtin_subclasses import base_of_value, value_of
from ..guards.read_native_iterators import container_of, reduced, table_of
from .rebuild_instances import build_attributes, build_key, steps_to
from .template_runtime import set_state
from .template_writer import TemplateWriter


def build_sequence(to: TemplateWriter, value: Any) -> str:
    kind = type(value)
    if kind is tuple:
        return to.name_once(value, to.tuple_of(value))
    if kind is list:
        name = to.name(value, "[]")
        if value:
            to.lines.append(f"{name} += {to.list_of(value)}")
        return name
    parts = f"[{', '.join([build_key(to, v) for v in value])}]"
    steps = steps_to(to, value)
    if steps is None:
        return to.name_once(value, to.call(kind, parts))
    return to.name_once(value, to.call(set_iteration_order.make, to.constant(kind), to.constant(steps), parts))


def build_dictionary(to: TemplateWriter, value: Any) -> str:
    kind = type(value)
    factory = to.build(value.default_factory) if kind is collections.defaultdict else ""
    name = to.name(value, "{}" if kind is dict else to.call(kind, factory))
    for k, v in value.items():
        key, part = build_key(to, k), to.build(v)
        to.lines.append(f"{name}[{key}] = {part}")
    if kind is not dict:  # counters and ordered dictionaries may have attributes
        build_attributes(to, value, name)
    return name


def build_deque(to: TemplateWriter, value: Any) -> str:
    name = to.name(value, to.call(collections.deque, "[]", str(value.maxlen)))
    to.lines.append(f"{name}.extend({to.list_of(elements_of(value))})")
    return name


def build_tuple_of_class(to: TemplateWriter, value: tuple) -> str:
    kind, items = type(value), to.tuple_of([*elements_of(value)])
    if kind is torch.Size:
        return to.name_once(value, to.call(torch.Size, items))
    if kind.__module__ == "torch.return_types":
        return to.name(value, to.call(kind, items))
    name = to.name_once(value, to.call(tuple.__new__, to.constant(kind), items))
    build_attributes(to, value, name)
    return name


def build_value_of_class(to: TemplateWriter, value: Any) -> str:
    """An object whose class derives from an immutable builtin one."""
    kind, base = type(value), base_of_value(type(value))
    name = to.name(value, to.call(base.__new__, to.constant(kind), to.build(value_of(value))))  # type: ignore[union-attr]
    build_attributes(to, value, name)
    return name


def build_bounds(to: TemplateWriter, value: slice | range) -> str:
    return to.name_once(value, f"{type(value).__name__}({to.items((value.start, value.stop, value.step))})")


def build_bytearray(to: TemplateWriter, value: bytearray) -> str:
    return to.name(value, to.call(bytearray, repr(bytes(value))))


def build_view(to: TemplateWriter, value: Any) -> str:
    method = type(value).__name__.partition("_")[2]
    return to.name(value, f"{to.build(container_of(value))}.{method}()")


def build_iterator(to: TemplateWriter, value: Any) -> str:
    """Builtin iterators are rebuilt by their ``__reduce__``."""
    if any(value is iterator for iterator in to.tracer.consumed):
        raise Unrebuildable(value)
    if type(value) in TABLE_ITERATORS:
        return build_table_iterator(to, value)
    try:
        maker, args, *state = reduced(value)
    except TypeError as error:
        raise Unrebuildable(value) from error
    outside = to.heap.origin_of(args[0]) if args else None
    if outside is not None and issubclass(type(outside.obj), collections.deque) and to.heap.changed(outside):
        raise Unrebuildable(value)  # it ends at any change after it is made
    name = to.name(value, to.call(maker, to.items(args)))
    if state and state[0] is not None:  # a position in a list is cut to the list's length, so the list comes first
        lines = to.lines if outside is None else to.after_effects
        lines.append(to.call(set_state, name, to.build(state[0])))
    return name


def build_table_iterator(to: TemplateWriter, value: Any) -> str:
    """An iterator over the same dictionary or set, so that it raises when the table changes."""
    table = table_of(value)
    if table is None:
        view, step = TABLE_ITERATORS[type(value)]
        empty = set() if view is itself else {} if view is not None else collections.OrderedDict()
        return to.name(value, to.call(step or iter, to.call(view or itself, to.constant(empty))))
    try:
        left = len(value.__reduce__()[1][0])
    except RuntimeError as error:  # the table has changed: the next step raises
        raise Unrebuildable(value) from error
    origin = to.heap.origin_of(table)
    if (
        origin is not None
        and to.heap.changed(origin)
        and (origin.snapshot is None or keys_of(origin.snapshot, table) != list(table))
    ):
        raise Unrebuildable(value)  # the table is changed after its iterator is made here
    view, step = TABLE_ITERATORS[type(value)]
    if view is None:  # of an ordered dictionary: its keys, values and items have one iterator class
        known = ordered_view(table, value)
        if known is None:
            raise Unrebuildable(value)
        view, step = known
    start = to.call(step, to.call(view, to.build(table)))
    return to.name(value, to.call(advanced, start, str(length_of(table) - left)))


def keys_of(snapshot: list, table: Any) -> list:
    return [k for k, _ in snapshot] if issubclass(type(table), dict) else snapshot


def ordered_view(table: collections.OrderedDict, iterator: Any) -> tuple[Any, Any] | None:
    left = iterator.__reduce__()[1][0]
    ordered = collections.OrderedDict
    for step in (iter, reversed):
        for view in (ordered.keys, ordered.values, ordered.items):
            rest = list(step(view(table)))[len(table) - len(left) :]
            if all(map(is_same_or_pair, left, rest)):
                return view, step
    return None


def is_same_or_pair(a: Any, b: Any) -> bool:
    return a is b or type(a) is type(b) is tuple and len(a) == len(b) and all(map(operator.is_, a, b))


def advanced(iterator: Any, steps: int) -> Any:
    for _ in range(steps):
        next(iterator)
    return iterator


def itself(table: Any) -> Any:
    return table


TABLE_ITERATORS: dict[type, tuple[Any, Any]] = {
    type(step(view({}))): (view, step) for view in (dict.keys, dict.values, dict.items) for step in (iter, reversed)
} | {type(iter(set())): (itself, iter), type(iter(collections.OrderedDict())): (None, None)}
