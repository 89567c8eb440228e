"""Numbers that differ from run to run, where they are read from outside objects: live scalars, not constants.

self.seen               its path is among the tracer's ``changing``: a live scalar
best = (score, name)    a tuple that holds such a number: one in its place, with the live scalar
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ..engine.object_lifetimes import Origin
from ..guards.changing_numbers import NUMBERS, leads_to
from ..guards.object_sources import Source
from ..guards.value_or_identity import is_named_tuple
from . import live_scalars, object_addresses

if TYPE_CHECKING:
    from ..engine.heap import Heap


def live_number(heap: Heap, value: Any, source: Source) -> Any:
    """A live scalar: a number whose type is guarded, but not its value, which differs on most runs."""
    found = heap.live_numbers.get(id(source))
    if found is None:
        heap.guard("type", source, type(value))
        found = live_scalars.make(value, live_scalars.Expression(None, (source,)), heap.tracer)
        found.original = value
        heap.live_numbers[id(source)] = found
        if heap.tracer.symbolic_sizes is not None and type(value) is int:
            heap.tracer.symbolic_sizes.offer(found, source)
    return found


def changing_number(heap: Heap, value: Any, source: Source, is_known_to: bool = False) -> Any:
    """A live scalar for a number that differed between two runs, or a tuple with such numbers; otherwise None."""
    changing: frozenset = heap.tracer.changing
    said = heap.tracer.size_requests
    if not (is_known_to or changing or said is not None):
        return None
    if type(value) in NUMBERS:
        is_live = is_known_to or source.path() in changing
        is_live = is_live or said is not None and said.is_dynamic_number(value, source)
        return live_number(heap, value, source) if is_live and value == value else None  # NaN is equal to none
    kind = type(value)
    if kind is not tuple and not is_named_tuple(kind) or said is None and not leads_to(source, changing):
        return None
    parts = [changing_number(heap, part, source.item(i)) for i, part in enumerate(value)]
    if all(part is None for part in parts):
        return None
    found = heap.live_numbers.get(id(source))
    if found is None:
        heap.guard("type", source, kind)
        heap.guard("length", source, len(value))
        items = [
            heap.admit(part, source.item(i)) if number is None else number
            for i, (part, number) in enumerate(zip(value, parts, strict=True))
        ]
        found = heap.live_numbers[id(source)] = tuple.__new__(kind, items)
        heap.originals[id(found)] = value
        heap.origins[id(found)] = Origin(found, source)
    return found


def admit_slot(heap: Heap, value: Any, source: Source) -> Any:
    """``admit`` a value that a break has left, in a slot or in an iterator."""
    found = changing_number(heap, value, source) if issubclass(type(value), tuple) else None
    return heap.admit(value, source, is_slot=True) if found is None else found


def read_length(heap: Heap, origin: Origin) -> int:
    """``len`` of an outside list or dictionary. No entries were written, but some may have been appended."""
    heap.refuse_received(origin)
    now = len(origin.obj)
    before = now if origin.appended_from is None else origin.appended_from
    found = changing_number(heap, before, origin.source.child("count")) if heap.tracer.changing else None
    if found is None:
        heap.guard("length", origin.source, before)
        return now
    return found if now == before else live_scalars.apply(operator.add, found, now - before)


def live_element(heap: Heap, container: Any, index: Any) -> Any:
    """The number that a live index finds in a list or tuple, which is then live, too; otherwise None."""
    kind = type(container)
    if kind is not list and kind is not tuple or type(index) is not live_scalars.LiveInt or index.expression.in_graph:
        return None
    at = index.plain()
    value = kind.__getitem__(container, at) if -len(container) <= at < len(container) else None
    if type(value) not in NUMBERS or value != value:
        return None
    origin = heap.origin_of(container)
    if origin is not None:
        if origin.complete or origin.is_written or object_addresses.is_in(index.expression):
            return None
        return live_number(heap, value, origin.source.child("at", index.expression))
    if len(container) > MOST_COPIED or not all(type(part) in NUMBERS for part in container):
        return None
    found = live_scalars.apply(operator.getitem, tuple(container), index)
    found.original = value
    return found


MOST_COPIED = 1024
"""The longest list of constants that becomes part of a formula."""
