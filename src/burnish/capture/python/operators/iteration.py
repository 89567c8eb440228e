"""Iteration while tracing: making iterators, taking elements, unpacking, and displays such as ``[*items]``.

Iterators of C code run natively over guarded containers. Iterators in Python are interpreted.
"""

from __future__ import annotations

import collections
import enum
import gc
import types
from types import FunctionType
from typing import Any

import torch

from ... import breaks
from ...engine.container_changes import keeps_numbers, refuse_view_of_methods, table_read_at_once
from ...engine.interpreted_or_native import is_trusted_type
from ...guards.changing_numbers import are_many, may_be_live
from ...guards.container_reads_past_overrides import elements_of
from ...guards.read_native_iterators import READABLE
from ...interpreter import frames as fr
from ...interpreter.frames import EXHAUSTED, MISSING, PUSHED, Generator
from ...interpreter.reads_past_overrides import may_have_keys
from ...numbers import numpy_tables
from ...numbers.live_scalars import Live
from ...numpy_calls import numpy_dispatch
from .. import template_strings
from ..attributes.attribute_writes import discard
from ..attributes.class_lookup import lookup
from ..polyfills import container_polyfills, iterator_polyfills, operator_protocol_polyfills
from .guard_before_native_read import expose
from .value_kinds import BUILTIN_CONTAINERS, SIMPLE, is_known_native, python_method

ITERATORS = frozenset(
    map(
        type,
        (
            *map(iter, ([], (), {}, {}.values(), {}.items(), set(), "", "é", b"", bytearray(), memoryview(b""))),
            *map(iter, (range(0), range(1 << 65), collections.deque(), collections.OrderedDict())),
            *map(reversed, ([], (), {}, {}.values(), {}.items(), range(0), range(1 << 65), collections.deque())),
            *(enumerate([]), zip()),
        ),
    )
)


def can_iterate(m: Any, value: Any) -> bool:
    """As Python sees it before it asks: None in a class says no, whatever else it has."""
    found = lookup(m, type(value), "__iter__")[0]
    return found is not None and (found is not MISSING or lookup(m, type(value), "__getitem__")[0] is not MISSING)


def needs_interpreting(m: Any, value: Any) -> bool:
    """Whether iterating ``value``, or reading it as a mapping, runs the user's Python. C code reads an ordered
    dictionary by its own ``keys`` and ``__getitem__``, and any other dictionary past them."""
    kind = type(value)
    if kind in SIMPLE or kind in BUILTIN_CONTAINERS or issubclass(type(value), torch.Tensor):
        return False
    if kind is Generator or kind in template_strings.ITERATED or numpy_dispatch.is_number(m, value):
        return True
    if kind in READABLE:
        return m.heap.is_outside_iterator(value)
    for name in ("__iter__", "__next__", "__getitem__", "keys"):
        found, owner = lookup(m, kind, name)
        if isinstance(found, FunctionType):
            return True
        if found is not MISSING and name == "__iter__" and not issubclass(kind, collections.OrderedDict):
            return False
    return False


def merges_in_python(m: Any, mapping: Any, into: type) -> bool:
    """Whether C code that stores a mapping's items in a dictionary calls the user's methods. An ordered dictionary
    reads all but plain dictionaries by their own ``keys`` and ``__getitem__``."""
    if issubclass(into, collections.OrderedDict) and issubclass(type(mapping), dict):
        return python_method(m, mapping, "keys") or python_method(m, mapping, "__getitem__")
    return needs_interpreting(m, mapping)


def refuse_union(m: Any, left: dict, right: dict) -> None:
    """Stop where C code would call the user's methods for ``left | right`` or ``left |= right``."""
    for side in (left, right):
        kind = type(side)
        if (
            is_made_by_calls(m, side)
            or merges_in_python(m, side, type(left))
            or issubclass(type(right), collections.OrderedDict)
            and merges_in_python(m, side, type(right))
        ):
            m.stop(breaks.OPAQUE_CALL, f"union of a {kind.__qualname__}")


def refuse_operands(m: Any, left: Any, right: Any) -> None:
    """The same, also for what proxies show."""
    refuse_view_of_methods(m.heap, left)
    refuse_view_of_methods(m.heap, right)
    left, right = (gc.get_referents(s)[0] if type(s) is types.MappingProxyType else s for s in (left, right))
    is_plain = type(left) is dict is type(right)
    if not is_plain and issubclass(type(left), dict) and issubclass(type(right), dict):
        refuse_union(m, left, right)


def refuse_copied_deque(m: Any, *sides: Any) -> None:
    for side in sides:
        if is_made_by_calls(m, side) or issubclass(type(side), collections.deque) and needs_interpreting(m, side):
            m.stop(breaks.OPAQUE_CALL, f"copy of a {type(side).__qualname__}")


MADE_BY_CALLS = (collections.OrderedDict, collections.defaultdict, collections.deque)


def is_made_by_calls(m: Any, value: Any) -> bool:
    """Whether C code that copies a container calls methods of the user: of these, it calls the class."""
    return issubclass(type(value), MADE_BY_CALLS) and (
        type(type(value)).__call__ is not type.__call__
        or any(
            isinstance(lookup(m, type(value), name)[0], (FunctionType, staticmethod))
            for name in ("__new__", "__init__", "copy", "__setitem__", "__getitem__")
        )
    )


def refuse_outside(m: Any, value: Any, what: str = "elements") -> None:
    """Stop where C code would advance an iterator from outside that cannot be read ahead."""
    kind = type(value)
    if m.heap.is_outside_iterator(value) and hasattr(kind, "__next__") and kind not in READABLE:
        m.stop(breaks.OUTSIDE_ITERATOR, f"{what} of a {kind.__qualname__}")


def iterate(m: Any, value: Any) -> Any:
    kind = type(value)
    if kind in ITERATORS or kind is Generator or kind.__module__ == "itertools":
        return value
    if issubclass(type(value), torch.Tensor):
        m.unbacked_sizes.check_first(value)
        if m.symbolic_sizes is not None:
            m.symbolic_sizes.specialize_sizes(value, 1)  # it is split along its first dimension
        return m.perform(iter, value)
    if issubclass(type(value), Live):
        return m.plainly(iter, value.settle())
    if kind is numpy_tables.ARRAY:
        return m.plainly(iter, numpy_dispatch.elements(m, value))
    if kind in template_strings.ITERATED:
        return m.call(iterator_polyfills.iterate_template, (value,), {})
    found, owner = lookup(m, kind, "__iter__")
    if found is enum.EnumMeta.__iter__:
        return m.plainly(iter, [*value])  # its own iterator is a native generator
    if isinstance(found, FunctionType):
        method = types.MethodType(found, value)
        return (
            m.call(method, (), {})
            if is_trusted_type(owner)
            else m.call(operator_protocol_polyfills.iterator_of, (method,), {})
        )
    if found is MISSING or found is None:
        if found is MISSING and python_method(m, value, "__getitem__"):
            return m.call(iterator_polyfills.iterate_by_index, (value,), {})
        return m.plainly(iter, value)
    if issubclass(type(value), BUILTIN_CONTAINERS):
        m.heap.expose_items(value)
        return m.plainly(iter, value)
    if kind in SIMPLE or is_known_native(kind):
        if kind is types.MappingProxyType:
            m.heap.expose(value)
        m.check_readable(iter, value)
        return m.plainly(iter, value)
    if m.heap.is_outside_iterator(value) and hasattr(kind, "__next__"):
        return value
    return m.stop(breaks.OPAQUE_CALL, f"iteration over a {kind.__qualname__}")


def iterate_in_loop(m: Any, value: Any) -> Any:
    """An iterator that only a loop advances, or a polyfill: of a list, it finds live scalars in place of numbers that
    change."""
    if not has_live(m, value):
        return iterate(m, value)
    m.heap.items_read_at_once(value)
    return m.plainly(iter, value)


def has_live(m: Any, value: Any) -> bool:
    """Whether it is an outside list in which numbers may be live scalars. Many would make a long graph."""
    return (
        type(value) is list
        and keeps_numbers(m.heap, m.heap.origin_of(value))
        and any(map(may_be_live, value))
        and not are_many(value)
    )


def advance_list(m: Any, iterator: Any) -> Any:
    _, (items, *_), *position = iterator.__reduce__()
    value = next(iterator, EXHAUSTED)
    origin = m.heap.origin_of(items) if may_be_live(value) else None
    return value if origin is None else m.heap.read_index(origin, position[0])


# Their elements are there already, or are numbers: the next one is had without any other code running.
PLAIN_ITERATORS = frozenset(map(type, (iter([]), iter(()), iter(range(0)), iter(range(1 << 70)), iter(""), iter("é"))))
LIST_ITERATOR = type(iter([]))
KEYED_ITERATORS = frozenset(map(type, (iter({}), iter({}.values()), iter({}.items()))))  # these may refuse to go on


def advance(m: Any, iterator: Any) -> Any:
    """The next element, EXHAUSTED, or PUSHED where ``__next__`` is Python."""
    kind = type(iterator)
    found, _ = (MISSING, None) if kind in PLAIN_ITERATORS or kind in KEYED_ITERATORS else lookup(m, kind, "__next__")
    if isinstance(found, FunctionType):
        answer = m.call(types.MethodType(found, iterator), (), {})
        if answer is PUSHED:
            m.frame.completion = fr.FOR_ITER
        return answer
    if m.heap.is_outside_iterator(iterator):
        from .. import outside_iterators  # few programs need it

        return outside_iterators.advance(m, iterator)
    if kind in PLAIN_ITERATORS:
        is_changing = m.heap.tracer.changing and kind is LIST_ITERATOR
        return advance_list(m, iterator) if is_changing else next(iterator, EXHAUSTED)
    if kind in KEYED_ITERATORS:
        return m.plainly(next, iterator, EXHAUSTED)
    if kind in ITERATORS or kind.__module__ == "itertools" or kind in (map, filter):
        return m.perform(next, iterator, EXHAUSTED)
    if found is MISSING:
        return m.plainly(next, iterator)
    return m.stop(breaks.OUTSIDE_ITERATOR, f"the next element of a {kind.__qualname__}")


def unpack(m: Any, value: Any, count: int | None) -> Any:
    if type(value) is tuple:
        return value
    has_own = python_method(m, value, "__iter__")
    if issubclass(type(value), tuple) and not has_own:
        return tuple(tuple.__iter__(value))  # its length is not asked for, which a class may define
    if issubclass(type(value), (list, collections.deque, dict, set, str, range)) and not has_own:
        return list(iter(m.heap.items_read_at_once(value)))  # nor is theirs
    if issubclass(type(value), torch.Tensor):
        m.unbacked_sizes.check_first(value)
        if m.symbolic_sizes is not None:
            m.symbolic_sizes.specialize_sizes(value, 1)  # it is split along its first dimension
        return m.perform(lambda t: list(iter(t)), value)

    kind = type(value)
    if not can_iterate(m, value):
        if hasattr(kind, "__iter__"):
            return m.plainly(iter, value)
        raise fr.Raised(TypeError(f"cannot unpack non-iterable {kind.__name__} object"))
    answer = m.call(
        container_polyfills.take if count is not None else container_polyfills.to_list,
        (value, count + 1) if count is not None else (value,),
        {},
    )
    if answer is PUSHED:
        m.frame.completion = fr.RETRY
    return answer


ITERABLE = (list, tuple, set, frozenset, collections.deque, str, range, dict)


def iterates_by_own_rules(m: Any, method: str, other: Any) -> bool:
    """Whether the user's methods are called for the elements. C code reads sets past them, and an ordered dictionary's
    items through them."""
    if method == "dict_update" and issubclass(type(other), collections.OrderedDict):
        return any(python_method(m, other, name) for name in ("keys", "__iter__", "__getitem__"))
    if method == "set_update" and issubclass(type(other), (set, frozenset)):
        return False
    return python_method(m, other, "__iter__")


def extend(m: Any, method: str, target: Any, other: Any) -> Any:
    if type(other) is dict and method == "dict_update" and type(target) is dict:
        other = table_read_at_once(m.heap, other)  # what its values hold is read where somebody reads it
        m.heap.will_write(target)
        if not all([type(key) is str for key in other]):
            m.check_stored_keys(list(other))
        target.update(other)
        return None
    if method == "dict_update" and not issubclass(type(other), dict):
        if not may_have_keys(other):
            raise fr.Raised(TypeError(f"'{type(other).__name__}' object is not a mapping"))
        return discard(m, m.call(container_polyfills.dict_update, (target, other), {}))
    if issubclass(type(other), ITERABLE) and not iterates_by_own_rules(m, method, other):
        if method == "list_extend":
            items = m.heap.items_read_at_once(other)
            with m.heap.appending(m.heap.origin_of(target)):
                target.extend(items)
            return None
        of_sets = method == "set_update" and issubclass(type(other), (set, frozenset))
        expose(m, other, reads_order=not of_sets)
        if of_sets:
            m.heap.read_order(other, stops=False)
        if issubclass(type(other), (set, frozenset, dict)):
            m.check_stored_keys(list(elements_of(other)))
        else:
            m.check_keys(list(elements_of(other)), set)
        if issubclass(type(target), set):
            with m.heap.changing_set(target, "update", (other,)):
                target.update(other)
        else:
            m.heap.will_write(target)
            target.update(other)
        return None

    kind = type(other)
    if not can_iterate(m, other):
        if method == "list_extend":
            if hasattr(kind, "__iter__"):
                return m.plainly(iter, other)
            raise fr.Raised(TypeError(f"Value after * must be an iterable, not {kind.__name__}"))
        return m.plainly(target.update, other)
    if method == "set_update":
        from ..polyfills import set_polyfills

        return discard(m, m.call(set_polyfills.set_update, (set, target, (other,), (True,)), {}))
    return discard(m, m.call(getattr(container_polyfills, method), (target, other), {}))
