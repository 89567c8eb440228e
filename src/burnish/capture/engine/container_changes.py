"""Guards a container's contents before the segment, and finds what changed in it."""

from __future__ import annotations

import collections
import contextlib
import enum
import gc
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .. import breaks
from ..guards.bypass_subclass_methods import elements_of, items_of
from ..guards.iterator_contents import VIEWS, container_of
from ..interpreter.reads_past_overrides import PLAIN_TABLES
from ..numbers import constant_arrays, numpy_tables
from .interpreted_or_native import find_on_type
from .object_lifetimes import Origin, has_finalizer
from .value_or_identity import DICTS, GUARDED_KINDS, LISTS, UNEXPOSED, has_fixed_meaning, is_compared_by_value

if TYPE_CHECKING:
    from .heap import Heap


OVERWRITTEN: Any = object()
"""In place of an old value that the program has replaced before it read the whole: what it was does not matter, unless
it was read before, which is guarded."""


def complete(heap: Heap, origin: Origin | None, with_live: bool = False) -> None:
    """Guard all of a container's content, as it was before the segment wrote to it. ``with_live``: numbers in a list
    that change from run to run are replaced by live scalars."""
    if origin is None or origin.complete:
        return
    obj = origin.obj
    origin.complete = True
    source = origin.source
    if isinstance(obj, DICTS):
        _complete_dictionary(heap, origin)
    elif isinstance(obj, LISTS):
        kind = list if isinstance(obj, list) else collections.deque
        n = kind.__len__(obj) if origin.appended_from is None else origin.appended_from
        heap.guard(*origin.by_base("length", n))
        items = list(kind.__iter__(obj))[:n]
        for i, part in enumerate(items):
            number = heap.changing_number(part, origin.entry(i)) if with_live else None
            if number is None:
                heap.admit(part, origin.entry(i))
            else:
                items[i] = number
                kind.__setitem__(obj, i, number)
        origin.snapshot = items
        origin.keeps_finalizers = any(map(has_finalizer, items))
        origin.appended_from = origin.appended_to = None
        if kind is collections.deque:
            heap.read_field(obj, "maxlen", lambda: obj.maxlen)
    elif type(obj) in VIEWS:
        expose(heap, heap.admit(_table_of_view(heap, obj), source.child("container")))
    elif isinstance(obj, (set, frozenset)):
        elements = list(elements_of(obj))
        for element in filter(hashes_in_python, elements):
            heap.tracer.refuse_key(element)
        heap.guard("equal set", source, frozenset(elements))
        origin.snapshot = elements
        origin.keeps_finalizers = any(map(has_finalizer, elements))


def _complete_dictionary(heap: Heap, origin: Origin) -> None:
    table, source = origin.obj, origin.source
    if isinstance(table, collections.defaultdict):
        heap.read_field(table, "default_factory", lambda: table.default_factory)
    if not origin.written:
        before = list(items_of(table))
    elif origin.order is not None:
        now = {k: v for k, v in items_of(table) if is_constant_key(k)}  # other keys may have a hash with effects
        before = [(k, origin.earlier.get(k, OVERWRITTEN) if k in origin.written else now[k]) for k in origin.order]
    else:
        # Keys were written before this read of the whole, and their order is lost.
        before = [(k, v) for k, v in items_of(table) if not is_constant_key(k) or k not in origin.written]
        heap.tracer.refuse_state("a dictionary was read as a whole after single keys had been written")
    keys = tuple(k for k, _ in before)
    if all(is_constant_key(k) for k in keys):
        heap.guard(*origin.by_base("keys", keys))
        for k, v in before:
            if v is not OVERWRITTEN:
                heap.admit(v, origin.entry(k))
    else:
        heap.guard(*origin.by_base("length", len(keys)))
        checked = list(filter(hashes_in_python, keys))
        all_keys, all_values = source.child("keys"), source.child("values")
        for i, (k, v) in enumerate(before):
            heap.admit(k, all_keys.item(i))
            heap.admit(v, all_values.item(i))
        heap.tracer.check_stored_keys(checked)
    origin.snapshot = before
    origin.keeps_finalizers = any(has_finalizer(k) or has_finalizer(v) for k, v in before)


def hashes_in_python(key: Any) -> bool:
    """Parameters have a hash in Python, too, but it is their address."""
    found = find_on_type(type(key), "__hash__")
    return isinstance(found, types.FunctionType) and not (
        found is torch.Tensor.__hash__ and isinstance(key, torch.nn.Parameter)
    )


def is_constant_key(key: Any) -> bool:
    kind = type(key)
    if kind is tuple:
        return all(map(is_constant_key, key))
    return (
        kind in (int, str, bool, bytes, float, type(None), torch.dtype, torch.device)
        or isinstance(key, (type, enum.Enum))
        or kind is types.FunctionType
        and has_fixed_meaning(key)
    )


def expose(heap: Heap, value: Any, depth: int = 0) -> None:
    """Guard everything native code could read by walking the containers in ``value``."""
    kind = type(value)
    if kind in UNEXPOSED:
        return
    if kind is types.MappingProxyType and type(gc.get_referents(value)[0]) not in PLAIN_TABLES:
        heap.tracer.stop(breaks.OPAQUE_CALL, "a view of a mapping that is no dictionary")
    if issubclass(kind, (list, dict, set, collections.deque, types.MappingProxyType)):
        origin = heap.origins.get(id(value))
        if origin is not None:
            heap.complete(origin)
        if depth < 20:
            if isinstance(value, DICTS):
                for k, v in items_of(value):
                    expose(heap, k, depth + 1)
                    expose(heap, v, depth + 1)
            else:
                for part in elements_of(value):
                    expose(heap, part, depth + 1)
    elif issubclass(kind, tuple):
        for part in elements_of(value):
            expose(heap, part, depth + 1)
    elif kind in VIEWS and (origin := heap.origins.get(id(value))) is not None:
        heap.complete(origin)
        expose(heap, _table_of_view(heap, value), depth + 1)


def _table_of_view(heap: Heap, view: Any) -> Any:
    table = container_of(view)
    if isinstance(table, collections.OrderedDict) and any(map(hashes_in_python, dict.keys(table))):
        heap.tracer.stop(breaks.USER_HASH, "a view whose keys have a hash in Python")  # which each reading asks again
    return table


def expose_items(heap: Heap, value: Any) -> None:
    """Guard what native code reads that only returns the elements of ``value``."""
    if issubclass(type(value), (list, tuple)):
        origin = heap.origins.get(id(value))
        if origin is not None and not isinstance(value, tuple):
            heap.complete(origin)
    else:
        expose(heap, value)


def items_read_at_once(heap: Heap, value: Any) -> Any:
    """``value`` for code that takes all its elements now. Numbers in a list that change from run to run are live in a
    copy: other threads see the list itself."""
    origin = heap.origins.get(id(value)) if type(value) is list else None
    if origin is None or origin.complete or origin.is_written or not heap.tracer.changing:
        expose_items(heap, value)
        return value
    heap.guard(*origin.by_base("length", len(value)))
    return [heap.read_index(origin, i) for i in range(len(value))]


def why_not_readable(heap: Heap, value: Any) -> str | None:
    """Why native code must not read ``value``: no guard covers the inner state of an outside object. What a view of a
    dictionary shows is guarded here."""
    origin = heap.origin_of(value)
    if constant_arrays.is_of_graph(heap.tracer, value):
        return "an array whose data the graph computes"
    if origin is None or origin.source.is_pinned or issubclass(type(value), GUARDED_KINDS):
        return None
    kind = type(value)
    if kind in VIEWS:
        expose(heap, value)
        return None
    is_readable = is_compared_by_value(kind) and kind not in numpy_tables.NUMBERS
    return None if is_readable else f"a {kind.__module__}.{kind.__qualname__} from outside"


@contextlib.contextmanager
def appending(heap: Heap, origin: Origin | None) -> Iterator[None]:
    """Around what adds to the end of a list, which may be from outside. An outside list that has not been read needs no
    guard: what is appended to it does not depend on what it holds."""
    if origin is None:
        yield
        return
    origin.is_changed_here = True
    if not origin.complete and origin.appended_from is None:
        if origin.known:
            heap.complete(origin)
        else:
            origin.appended_from = list.__len__(origin.obj)
    check_length(heap, origin)
    try:
        yield
    finally:
        if origin.appended_from is not None:
            origin.appended_to = list.__len__(origin.obj)


def check_length(heap: Heap, origin: Origin) -> None:
    """What another thread appends meanwhile must not become part of the segment."""
    if origin.appended_to is not None and origin.appended_to != list.__len__(origin.obj):
        heap.raced = str(origin.source)


def changed(heap: Heap, origin: Origin) -> bool:
    """Whether an outside container's content differs from before the segment."""
    if origin.appended_from is not None:
        check_length(heap, origin)
    if origin.is_written:
        return True
    if origin.snapshot is None or not has_changed_since(origin):
        return False
    if not origin.is_changed_here:
        heap.raced = str(origin.source)
    return True


def note_changes(heap: Heap) -> None:
    """Called after native code that may change any container: changes so far count as the program's."""
    for origin in heap.origins.values():
        if origin.appended_from is not None:
            origin.appended_to = list.__len__(origin.obj)
        elif origin.snapshot is not None and has_changed_since(origin):
            origin.is_changed_here = True


def has_changed_since(origin: Origin) -> bool:
    """Whether a container that was guarded as a whole has changed since."""
    obj = origin.obj
    if isinstance(obj, DICTS):
        now = list(items_of(obj))
        return len(now) != len(origin.snapshot) or any(
            k is not k0 or v is not v0 for (k, v), (k0, v0) in zip(now, origin.snapshot, strict=True)
        )
    now = list(elements_of(obj))
    if isinstance(obj, set):
        return set(map(id, now)) != set(map(id, origin.snapshot))
    return len(now) != len(origin.snapshot) or any(a is not b for a, b in zip(now, origin.snapshot, strict=True))
