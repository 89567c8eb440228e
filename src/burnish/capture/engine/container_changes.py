"""Guards a container's contents before the segment, and finds what changed in it."""

from __future__ import annotations

import collections
import contextlib
import enum
import gc
import operator
import types
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .. import breaks
from ..guards import set_iteration_order
from ..guards.changing_numbers import are_many
from ..guards.container_reads_past_overrides import elements_of, items_of, length_of
from ..guards.read_native_iterators import VIEWS, container_of
from ..guards.value_or_identity import (
    DICTS,
    GUARDED_KINDS,
    LISTS,
    METHOD_WRAPPER,
    UNEXPOSED,
    has_fixed_meaning,
    is_compared_by_value,
)
from ..interpreter.reads_past_overrides import PLAIN_TABLES
from ..numbers import constant_arrays, numpy_tables
from .interpreted_or_native import hashes_in_python
from .object_lifetimes import Origin, has_lifetime, is_missed, with_lifetimes

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
    heap.refuse_received(origin)
    obj = origin.obj
    origin.complete = True
    source = origin.source
    if issubclass(type(obj), DICTS):
        _complete_dictionary(heap, origin)
    elif issubclass(type(obj), LISTS):
        kind = list if issubclass(type(obj), list) else collections.deque
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
        origin.lasting = with_lifetimes(items)
        origin.appended_from = origin.appended_to = None
        if type(obj) is collections.deque:
            heap.read_field(obj, "maxlen", lambda: obj.maxlen)
        elif kind is collections.deque:
            heap.guard_answer(is_bounded_by, source, LONGEST.__get__(obj))
    elif type(obj) in VIEWS:
        expose(heap, heap.admit(_table_of_view(heap, obj), source.child("container")))
    elif issubclass(type(obj), (set, frozenset)):
        elements = list(elements_of(obj))
        for element in filter(hashes_in_python, elements):
            heap.tracer.refuse_key(element)
        heap.guard("equal set", source, frozenset(map(set_iteration_order.remembered, elements)))
        origin.snapshot = elements
        order_of(heap, origin)
        origin.lasting = with_lifetimes(elements)


def is_bounded_by(items: collections.deque, longest: int | None) -> bool:
    return LONGEST.__get__(items) == longest


LONGEST: Any = vars(collections.deque)["maxlen"]
"""Past a subclass's own attribute."""


def _complete_dictionary(heap: Heap, origin: Origin) -> None:
    table, source = origin.obj, origin.source
    if issubclass(type(table), collections.defaultdict):
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
    origin.lasting = with_lifetimes([part for item in before for part in item])


def is_constant_key(key: Any) -> bool:
    kind = type(key)
    if kind is tuple:
        return all(map(is_constant_key, key))
    return (
        kind in (int, str, bool, bytes, float, type(None), torch.dtype, torch.device)
        or issubclass(type(key), (type, enum.Enum))
        or kind is types.FunctionType
        and has_fixed_meaning(key)
    )


def refuse_view_of_methods(heap: Heap, value: Any) -> None:
    """A mapping proxy reads by the methods of what it shows."""
    while type(value) is types.MappingProxyType:
        value = gc.get_referents(value)[0]
        if type(value) not in PLAIN_TABLES:
            heap.tracer.stop(breaks.OPAQUE_CALL, "a view of a mapping that is not a dictionary")


def expose(
    heap: Heap, value: Any, depth: int = 0, reads_order: bool = True, walked: dict[int, int] | None = None
) -> None:
    """Guard everything native code could read by walking the containers in ``value``. ``reads_order``: of sets, too.
    ``walked``: the depths at which containers were met, which may hold each other many times."""
    kind = type(value)
    if kind in UNEXPOSED:
        return
    if issubclass(kind, (set, frozenset)) and reads_order:
        read_order(heap, value)
    refuse_view_of_methods(heap, value)
    walked = {} if walked is None else walked
    if walked.get(id(value), depth + 1) <= depth:
        return
    walked[id(value)] = depth
    if issubclass(kind, (list, dict, set, collections.deque, types.MappingProxyType)):
        origin = heap.origins.get(id(value))
        if origin is not None:
            heap.complete(origin)
        if depth < 20:
            if issubclass(type(value), DICTS):
                for k, v in list(items_of(value)):  # guards may import, which adds to sys.modules
                    expose(heap, k, depth + 1, reads_order, walked)
                    expose(heap, v, depth + 1, reads_order, walked)
            else:
                for part in elements_of(value):
                    expose(heap, part, depth + 1, reads_order, walked)
    elif issubclass(kind, tuple):
        for part in elements_of(value):
            expose(heap, part, depth + 1, reads_order, walked)
    elif kind in VIEWS and (origin := heap.origins.get(id(value))) is not None:
        heap.complete(origin)
        expose(heap, _table_of_view(heap, value), depth + 1, reads_order, walked)


def _table_of_view(heap: Heap, view: Any) -> Any:
    table = container_of(view)
    if issubclass(type(table), collections.OrderedDict) and any(map(hashes_in_python, dict.keys(table))):
        heap.tracer.stop(breaks.USER_HASH, "a view whose keys have a hash in Python")  # which each reading asks again
    return table


def expose_items(heap: Heap, value: Any) -> None:
    """Guard what native code reads that only returns the elements of ``value``."""
    if issubclass(type(value), (list, tuple)):
        origin = heap.origins.get(id(value))
        if origin is not None and not issubclass(type(value), tuple):
            heap.complete(origin)
    else:
        expose(heap, value)


def items_read_at_once(heap: Heap, value: Any) -> Any:
    """``value`` for code that takes all its elements now. Numbers in a list that change from run to run are live in a
    copy: other threads see the list itself."""
    origin = heap.origins.get(id(value)) if type(value) in (list, collections.deque) else None
    if not keeps_numbers(heap, origin) or are_many(value):
        expose_items(heap, value)
        return value
    heap.guard(*origin.by_base("length", len(value)))
    return [heap.read_index(origin, i) for i in range(len(value))]


def keeps_numbers(heap: Heap, origin: Origin | None) -> bool:
    """Whether numbers in an outside container that change from run to run can be live scalars."""
    return origin is not None and not (origin.complete or origin.is_written) and bool(heap.tracer.changing)


def table_read_at_once(heap: Heap, table: dict) -> dict:
    """The same for a dictionary. The program may have written to it, if the old order of its keys is known."""
    origin = heap.origins.get(id(table))
    if origin is None or origin.complete or not heap.tracer.changing or are_many(table.values()):
        heap.complete(origin)
        return table
    before = tuple(table) if not origin.written else origin.order
    if not before or not all(map(is_constant_key, (*before, *table))):
        heap.complete(origin)
        return table
    heap.guard(*origin.by_base("keys", before))
    return {key: heap.read_key(origin, key) for key in table}


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


# ---- sets: the order of their elements, and what was done to them


class SetOrder:
    """The order of an outside set before the segment."""

    __slots__ = ("elements", "is_guarded", "table")

    def __init__(self, items: Any):
        self.table = set_iteration_order.table_of(items)
        self.elements = list(elements_of(items))
        self.is_guarded = False


MOST_STEPS = 2048
MANY: tuple = (object(),)
"""In place of more steps: the set gets its elements in any order."""
SELF: Any = object()
"""The changed set as an argument."""


def order_of(heap: Heap, origin: Origin | None) -> SetOrder | None:
    if origin is not None and origin.set_order is None and set_iteration_order.IS_UNDERSTOOD:
        if any(map(hashes_in_python, elements_of(origin.obj))):
            return None  # it is guarded by identity
        origin.set_order = SetOrder(origin.obj)
        heap.in_sets.update(map(id, origin.set_order.elements))
    return None if origin is None else origin.set_order


def read_order(heap: Heap, items: Any, stops: bool = True) -> None:
    """The order of a set is read. ``stops``: not only as that of another set's elements."""
    if length_of(items) < 2:
        return
    origin = heap.origin_of(items)
    order = order_of(heap, origin)
    if stops and not has_lasting_order(heap, items):
        heap.tracer.stop(breaks.OPAQUE_CALL, "the order of a set of objects, which comes from their addresses")
    if origin is not None and origin.steps is MANY:
        heap.tracer.stop(breaks.OPAQUE_CALL, "the order of a set after many changes")
    if origin is None or order is None or order.is_guarded:
        return
    if origin.steps and order.table.fill > len(order.elements):
        heap.tracer.stop(breaks.OPAQUE_CALL, "the order of a set from which elements had been removed")
    order.is_guarded = True
    heap.add("set layout", origin.source, set_iteration_order.expected_layout(order.table, order.elements))


def has_lasting_order(heap: Heap, items: Any) -> bool:
    """Whether the elements have the same hashes in each call."""
    return all(hash_is_lasting(heap, element) for element in elements_of(items))


def hash_is_lasting(heap: Heap, value: Any) -> bool:
    kind = type(value)
    if id(value) in heap.in_sets or is_constant_key(value):
        return True
    if issubclass(kind, (tuple, frozenset)) and kind.__hash__ in (tuple.__hash__, frozenset.__hash__):
        return all(hash_is_lasting(heap, part) for part in elements_of(value))
    if issubclass(kind, weakref.ref):
        return hash_is_lasting(heap, value())
    if hashes_in_python(value) and not issubclass(kind, torch.Tensor):
        return True
    if has_fixed_meaning(value):
        return True
    if kind in BY_PARTS or kind.__hash__ in (object.__hash__, torch.Tensor.__hash__):
        origin = heap.origin_of(value)
        return origin is not None and origin.source.is_pinned
    return True


BY_PARTS = frozenset((types.MethodType, types.BuiltinFunctionType, types.GenericAlias, METHOD_WRAPPER))


@contextlib.contextmanager
def changing_set(heap: Heap, items: Any, method: str, args: tuple) -> Iterator[None]:
    """Around a method that changes a set, which may be from outside. What it does depends on the layout, so it is
    repeated as it is, and not only its result."""
    origin = heap.origin_of(items)
    if origin is not None:
        heap.will_write(items)
    if origin is None or order_of(heap, origin) is None:
        yield
        return
    check_elements(heap, origin)
    before = list(elements_of(items))
    if not origin.steps and not are_same(before, origin.snapshot):
        origin.steps = (None,)  # by an unknown method
    if len(origin.steps) >= MOST_STEPS:
        origin.steps = MANY
    if method == "pop":
        read_order(heap, items)
    step = method, [arg if method in KEYED else SELF if arg is items else set_operand(heap, arg) for arg in args]
    if method not in ADDING and any(map(may_be_missed, taken_by(items, step))):
        heap.tracer.refuse_state("a change of a container with objects whose end may be noticed")
    try:
        yield
    except BaseException:
        if not are_same(elements_of(items), before):
            note_step(origin, None)  # no method with these arguments may be called again: it raises
        raise
    note_step(origin, step)


def note_step(origin: Origin, step: tuple[str, list] | None) -> None:
    """For CPython, one ``update`` by a list is the same as to ``add`` its elements one by one."""
    origin.after_steps = list(elements_of(origin.obj))
    if origin.steps is MANY:
        return
    steps = origin.steps
    last = steps[-1] if steps else None
    if step is not None and step[0] == "add" and last is not None and last[0] in ("add", "update"):
        added = last[1] if last[0] == "add" else last[1][-1] if last[1] else None
        if type(added) is list:
            rest = [] if last[0] == "add" else last[1][:-1]
            step, steps = ("update", [*rest, [*added, *step[1]]]), steps[:-1]
    origin.steps = (*steps, step)


KEYED = frozenset(("add", "discard", "remove"))
ADDING = frozenset(("add", "update", "__ior__"))


def taken_by(items: Any, step: tuple[str, list]) -> Iterator[Any]:
    """What a method may take out of a set, and its arguments: the recorded step would keep them alive."""
    method, args = step
    if method in KEYED:
        yield from args
        return
    yield from elements_of(items)
    for other in args:
        if other is not SELF:
            yield from other.elements if type(other) is OtherSet else other


def may_be_missed(value: Any) -> bool:
    return has_lifetime(value) and not is_constant_key(value)


class OtherSet(NamedTuple):
    """A set that is an argument, as it was then."""

    kind: type
    steps: set_iteration_order.BuildSteps
    elements: list


def set_operand(heap: Heap, other: Any) -> Any:
    """What a method of a set iterates over."""
    kind = type(other)
    if issubclass(kind, (list, tuple, str, bytes, range)):
        return list(elements_of(other))
    if issubclass(kind, dict):
        return dict.fromkeys(dict.keys(other))
    if issubclass(kind, (set, frozenset)):
        read_order(heap, other, stops=False)
        is_outside = heap.origin_of(other) is not None
        if not (is_outside and set_iteration_order.layout_of(other).removed) and not any(
            map(hashes_in_python, elements_of(other))
        ):
            steps = set_iteration_order.how_to_make(other)
            if steps is not None:
                return OtherSet(set if issubclass(kind, set) else frozenset, steps, list(elements_of(other)))
    heap.tracer.stop(breaks.OPAQUE_CALL, f"a set from outside is changed by a {kind.__qualname__}")
    return None


def check_elements(heap: Heap, origin: Origin) -> None:
    """What another thread changes meanwhile must not become part of the segment."""
    if origin.after_steps is not None and not are_same(elements_of(origin.obj), origin.after_steps):
        heap.raced = str(origin.source)


def are_same(now: Iterable, before: list) -> bool:
    now = list(now)
    return len(now) == len(before) and all(map(operator.is_, now, before))


@contextlib.contextmanager
def appending(heap: Heap, origin: Origin | None) -> Iterator[None]:
    """Around what adds to the end of a list, which may be from outside. Its contents need no guard but for the elements
    that are read: values appended to it do not depend on the others."""
    if origin is None:
        yield
        return
    heap.refuse_received(origin)
    origin.is_changed_here = True
    if not origin.complete and origin.appended_from is None:
        origin.appended_from = list.__len__(origin.obj)
    check_length(heap, origin)
    try:
        yield
    finally:
        if origin.appended_from is not None:
            origin.appended_to = list.__len__(origin.obj)


def was_appended(heap: Heap, origin: Origin, index: int) -> bool:
    """Whether an index from the end of a list finds what this trace has appended, whatever was there before."""
    if origin.complete or origin.appended_from is None:
        return False
    check_length(heap, origin)
    return origin.appended_from - list.__len__(origin.obj) <= index < 0


def check_length(heap: Heap, origin: Origin) -> None:
    """What another thread appends meanwhile must not become part of the segment."""
    if origin.appended_to is not None and origin.appended_to != list.__len__(origin.obj):
        heap.raced = str(origin.source)


def check_lifetimes(heap: Heap, origin: Origin, leaving: Sequence | None = None) -> None:
    """What the program takes out of a container goes at once. The trace would keep it until its end. ``leaving``: what
    is taken out, if that is not all."""
    if any(map(is_missed, origin.lasting if leaving is None else with_lifetimes(leaving))):
        heap.tracer.refuse_state("a change of a container with objects whose end may be noticed")


def changed(heap: Heap, origin: Origin) -> bool:
    """Whether an outside container's content differs from before the segment."""
    if origin.appended_from is not None:
        check_length(heap, origin)
    if origin.is_written:
        return True
    if origin.steps:
        check_elements(heap, origin)
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
        elif origin.steps and not are_same(elements_of(origin.obj), origin.after_steps or []):
            note_step(origin, None)  # by an unknown method
        elif origin.snapshot is not None and has_changed_since(origin):
            origin.is_changed_here = True


def has_changed_since(origin: Origin) -> bool:
    """Whether a container that was guarded as a whole has changed since."""
    obj = origin.obj
    if issubclass(type(obj), DICTS):
        now = list(items_of(obj))
        return len(now) != len(origin.snapshot) or any(
            k is not k0 or v is not v0 for (k, v), (k0, v0) in zip(now, origin.snapshot, strict=True)
        )
    now = list(elements_of(obj))
    if issubclass(type(obj), set):
        return set(map(id, now)) != set(map(id, origin.snapshot))
    return not are_same(now, origin.snapshot)
