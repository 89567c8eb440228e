"""Subscripts while tracing: reading, writing and deleting items of a container.

``subscript`` and the functions like it implement ``container[key]``, for which a class may have its own method. The
``natively`` ones implement the base method that such a method calls: ``list.__getitem__(self, key)``.
"""

from __future__ import annotations

import collections
import operator
import types
from types import FunctionType
from typing import Any

import torch

from ... import breaks
from ...engine import container_changes
from ...engine.container_changes import hashes_in_python
from ...engine.interpreted_or_native import find_on_type, is_trusted_type
from ...engine.object_lifetimes import leaving_sequence
from ...guards.container_reads_past_overrides import has_key, length_of
from ...guards.immutable_builtin_subclasses import base_of_value, value_of
from ...guards.tensor_metadata import TENSOR_TYPES, is_tensor
from ...interpreter.frames import MISSING
from ...numbers import constant_tensors, graph_numbers, numpy_tables
from ...numbers.live_scalars import Live
from ...numpy_calls import numpy_dispatch
from ...symbolic_sizes.unbacked_sizes import takes_sizes
from ..attributes.attribute_writes import discard
from ..attributes.class_lookup import lookup
from ..attributes.descriptor_binding import special_method
from ..polyfills import container_polyfills
from . import guard_before_native_read, iteration, value_kinds

IN_ORDER = (list, collections.deque)


def subscript(m: Any, container: Any, key: Any) -> Any:
    kind = type(container)
    if type(key) is int and (kind is tuple or kind is torch.Size):
        return m.plainly(operator.getitem, container, key)
    if is_tensor(container):
        guard_before_native_read.expose(m, key)
        check_index(m, key)
        key = numpy_dispatch.key_of_tensor(m, key)
        key = constant_tensors.with_limits(m, key)
        if m.symbolic_sizes is not None:
            m.symbolic_sizes.check_slices(container, key)
            if m.symbolic_sizes.takes(key, "__getitem__"):
                return m.perform(*selection(m, container, key))
        if not takes_sizes(m, "__getitem__"):
            graph_numbers.settle_numbers(m, key)
        elif graph_numbers.is_graph_number(key):
            return m.perform(operator.getitem, container, key)
        return m.perform(operator.getitem, container, guard_before_native_read.settled(key))
    if issubclass(kind, type):
        return subscript_class(m, container, key)
    if kind is numpy_tables.ARRAY:
        return numpy_dispatch.subscript(m, container, key)
    if issubclass(kind, torch.nn.Module) or value_kinds.python_method(m, container, "__getitem__"):
        return m.call(getitem_or_error(m, container), (key,), {})
    if indexes_in_python(m, key) and issubclass(type(container), INDEXED):
        return m.call(container_polyfills.get_by_index, (container, key), {})
    return subscript_natively(m, container, key)


def selection(m: Any, container: torch.Tensor, index: Live) -> tuple:
    """The call for ``container[index]``. Compilers of others look at the index of the one in brackets. Errors, and the
    rules of classes and modes, show which call it was."""
    if m.modes or type(container) not in TENSOR_TYPES or not container.ndim:
        return operator.getitem, container, index
    size = container.shape[0]
    is_valid = -size <= index.plain() < size
    return (torch.select, container, 0, index) if is_valid else (operator.getitem, container, index)


INDEXED = (list, tuple, str, bytes, bytearray, range, collections.deque)


def indexes_in_python(m: Any, key: Any) -> bool:
    """Whether a key, or a limit of a slice, has its own ``__index__``."""
    if type(key) is slice:
        return any(indexes_in_python(m, part) for part in (key.start, key.stop, key.step))
    return not issubclass(type(key), int) and value_kinds.python_method(m, key, "__index__")  # integers are not asked


def subscript_natively(m: Any, container: Any, key: Any) -> Any:
    """``list.__getitem__(container, key)``: called from a subclass's own method, it must not call that method again."""
    kind = type(container)
    if indexes_in_python(m, key) and kind in INDEXED:
        return m.call(container_polyfills.get_by_index, (container, key), {})
    if is_tensor(key) and issubclass(kind, (list, tuple, str, range)):
        return m.perform(operator.getitem, container, key)
    if issubclass(type(key), Live):
        found = m.heap.live_element(container, key)
        if found is not None:
            return found
        key = key.settle()
    elif type(key) is slice or type(key) is tuple or type(key) in numpy_tables.NUMBERS:
        check_slice(m, key)
        guard_before_native_read.settle_all(m, key)
    origin = m.heap.origin_of(container)
    if issubclass(type(container), (dict, types.MappingProxyType)):
        container_changes.refuse_view_of_methods(m.heap, container)
        return subscript_dict(m, container, key, origin)
    if issubclass(type(container), Live):
        return m.plainly(operator.getitem, container.settle(), key)
    if origin is not None and issubclass(type(container), (list, collections.deque)):
        length = length_of(container)
        if type(key) is int and -length <= key < length and not origin.complete and origin.appended_from is None:
            return m.heap.read_index(origin, key)
        if type(key) is not int or not m.heap.was_appended(origin, key):
            m.heap.complete(origin)
    if indexes_in_python(m, key):
        m.stop(breaks.OPAQUE_CALL, "an index with its own __index__")
    if issubclass(type(container), IN_ORDER):
        return m.plainly(in_order(container).__getitem__, container, key)
    if base_of_value(kind) is not None:
        return m.plainly(operator.getitem, value_of(container), key)
    if issubclass(type(container), value_kinds.BUILTIN_CONTAINERS) or value_kinds.is_known_native(kind):
        m.check_readable(operator.getitem, container)
        return m.plainly(operator.getitem, container, key)
    if lookup(m, kind, "__getitem__")[0] is MISSING:
        return m.plainly(operator.getitem, container, key)  # which refuses
    return m.stop(breaks.OPAQUE_CALL, f"subscript of a {kind.__qualname__}")


def in_order(container: Any) -> Any:
    """The builtin base class of a list or deque: ``[]`` would find a subclass's override."""
    return list if issubclass(type(container), list) else collections.deque


def check_slice(m: Any, key: Any) -> None:
    """Stop if Python would read the limits of a slice from tensors."""
    if type(key) is slice and any(is_tensor(part) for part in (key.start, key.stop, key.step)):
        m.stop(breaks.DATA_READ, "a tensor used as an index")


def check_place(m: Any, key: Any) -> None:
    """Stop before a list is changed at an index that Python would read from a tensor."""
    guard_before_native_read.check_numbers(m, (key,))
    if is_tensor(key):
        m.stop(breaks.DATA_READ, "a tensor used as an index")


def check_index(m: Any, key: Any) -> None:
    """Stop if indexing would call a user's ``__index__``."""
    for part in key if type(key) is tuple else (key,):
        for value in (part.start, part.stop, part.step) if type(part) is slice else (part,):
            if value_kinds.python_method(m, value, "__index__"):
                m.stop(breaks.OPAQUE_CALL, "an index with its own __index__")


def subscript_class(m: Any, cls: type, key: Any) -> Any:
    found, _ = lookup(m, type(cls), "__getitem__")
    if isinstance(found, FunctionType):
        if is_trusted_type(type(cls)):
            return m.plainly(operator.getitem, cls, key)
        return m.call(found, (cls, key), {})
    of_class, owner = lookup(m, cls, "__class_getitem__") if found is MISSING else (MISSING, None)
    if (
        isinstance(of_class, classmethod)
        and isinstance(of_class.__func__, FunctionType)
        and owner is not None
        and not is_trusted_type(owner)
    ):
        return m.call(of_class.__func__, (cls, key), {})
    return m.plainly(operator.getitem, cls, key)


def getitem_or_error(m: Any, obj: Any) -> Any:
    method = special_method(m, obj, "__getitem__")
    if method is MISSING:
        m.plainly(operator.getitem, obj, 0)  # CPython's own message for the missing operation
        m.stop(breaks.OPAQUE_CALL, f"__getitem__ of a {type(obj).__qualname__}")
    return method


def subscript_dict(m: Any, table: Any, key: Any, origin: Any) -> Any:
    guard_before_native_read.check_key(m, key, dict)
    missing = special_method(m, table, "__missing__") if type(table) is not dict else MISSING
    if origin is not None and not origin.complete:
        if m.heap.is_constant_key(key):
            value = m.heap.read_key(origin, key)
            if value is not MISSING:
                return value
        else:
            m.heap.complete(origin)
    if missing is not MISSING and not has_key(table, key):
        found = find_on_type(type(table), "__missing__")
        if found is collections.defaultdict.__missing__ and table.default_factory is not None:
            factory = m.heap.read_field(table, "default_factory", lambda: table.default_factory)
            return m.call(container_polyfills.default_item, (table, key, factory), {})
        if isinstance(missing, (types.MethodType, FunctionType)):
            return m.call(missing, (key,), {})
    if isinstance(table, types.MappingProxyType):
        return m.plainly(operator.getitem, table, key)
    return m.plainly(dict.__getitem__, table, key)


def store_subscript(m: Any, container: Any, key: Any, value: Any) -> Any:
    if issubclass(type(container), torch.Tensor):
        guard_before_native_read.expose(m, key)
        guard_before_native_read.expose(m, value)
        check_index(m, key)
        if m.symbolic_sizes is not None:
            m.symbolic_sizes.check_slices(container, key)
        m.perform(operator.setitem, container, key, graph_numbers.in_tensors_type(m, value, container))
        return None
    if type(container) is numpy_tables.ARRAY:
        return numpy_dispatch.store_subscript(m, container, key, value)
    if value_kinds.python_method(m, container, "__setitem__"):
        return discard(m, m.call(special_method(m, container, "__setitem__"), (key, value), {}))
    if indexes_in_python(m, key) and issubclass(type(container), INDEXED):
        return discard(m, m.call(container_polyfills.set_by_index, (container, key, value), {}))
    return store_natively(m, container, key, value)


def store_natively(m: Any, container: Any, key: Any, value: Any) -> Any:
    """``list.__setitem__(container, key, value)``."""
    if indexes_in_python(m, key) and type(container) in INDEXED:
        return discard(m, m.call(container_polyfills.set_by_index, (container, key, value), {}))
    if m.region is not None:
        m.region.will_write(container)
    if issubclass(type(key), Live):
        key = key.settle()
    elif type(key) is slice:
        check_slice(m, key)
        guard_before_native_read.settle_all(m, key)
        guard_before_native_read.expose(m, value)
        if (
            issubclass(type(container), list)
            and value is not container
            and (iteration.needs_interpreting(m, value) or not issubclass(type(value), value_kinds.BUILTIN_CONTAINERS))
            and iteration.can_iterate(m, value)
        ):
            return discard(m, m.call(container_polyfills.store_slice, (container, key, value), {}))
    if issubclass(type(container), dict):
        store_key(m, container, key, value)
        return None
    if issubclass(type(container), IN_ORDER):
        check_place(m, key)
        m.heap.will_write(container, True, leaving_sequence(container, "__setitem__", (key,)))
        m.plainly(in_order(container).__setitem__, container, key, value)
        return None
    if issubclass(type(container), (str, tuple, range, int, float, type(None))):
        m.plainly(operator.setitem, container, key, value)
    return m.stop(breaks.UNSUPPORTED_WRITE, f"item assignment on a {type(container).__qualname__}")


def table_kind(table: dict) -> type:
    return collections.OrderedDict if isinstance(table, collections.OrderedDict) else dict


def store_key(m: Any, table: dict, key: Any, value: Any) -> None:
    # The method of the base class: a subclass may override it, and this is the call that its override makes.
    base = table_kind(table)
    guard_before_native_read.check_key(m, key, base)
    key = guard_before_native_read.settled(key)
    origin = m.heap.origin_of(table)
    if origin is not None:
        if m.heap.is_constant_key(key):
            m.heap.will_write_key(origin, key)
        else:
            m.heap.will_write(table, False, None if hashes_in_python(key) else (dict.get(table, key),))
    m.plainly(base.__setitem__, table, key, value)


def delete_subscript(m: Any, container: Any, key: Any) -> Any:
    if value_kinds.python_method(m, container, "__delitem__"):
        return discard(m, m.call(special_method(m, container, "__delitem__"), (key,), {}))
    if indexes_in_python(m, key) and issubclass(type(container), INDEXED):
        return discard(m, m.call(container_polyfills.delete_by_index, (container, key), {}))
    return delete_natively(m, container, key)


def delete_natively(m: Any, container: Any, key: Any) -> Any:
    if indexes_in_python(m, key) and type(container) in INDEXED:
        return discard(m, m.call(container_polyfills.delete_by_index, (container, key), {}))
    if m.region is not None:
        m.region.will_write(container)
    check_slice(m, key)
    guard_before_native_read.settle_all(m, key)
    key = guard_before_native_read.settled(key)
    if issubclass(type(container), dict):
        guard_before_native_read.check_key(m, key, table_kind(container))
        origin = m.heap.origin_of(container)
        if origin is not None:
            if m.heap.is_constant_key(key) and has_key(container, key):
                m.heap.will_write_key(origin, key, deletes=True)
            else:
                m.heap.will_write(container)
    elif issubclass(type(container), IN_ORDER):
        check_place(m, key)
        m.heap.will_write(container, False, leaving_sequence(container, "__delitem__", (key,)))
        m.plainly(in_order(container).__delitem__, container, key)
        return None
    elif not issubclass(type(container), (str, tuple)):
        m.stop(breaks.UNSUPPORTED_WRITE, f"item deletion on a {type(container).__qualname__}")
    m.plainly(operator.delitem, container, key)
    return None
