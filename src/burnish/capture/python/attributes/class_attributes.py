"""Attributes of classes, and of ``super()``: ``type.__getattribute__`` with metaclasses."""

from __future__ import annotations

import functools
import weakref
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any

from ... import breaks
from ...engine.interpreted_or_native import find_on_type, is_trusted_type
from ...interpreter.frames import MISSING
from ...interpreter.reads_past_overrides import table_of_class
from ...interpreter.versions.behavior import BEHAVIOR
from ...numbers.live_scalars import Expression
from ..polyfills import object_polyfills
from .class_lookup import guard_absent, guard_order, lookup, lookup_after
from .descriptor_binding import (
    C_DESCRIPTORS,
    bind,
    bind_function,
    class_value,
    getter_of,
    is_classmethod,
    is_data_descriptor,
    is_property,
)
from .function_attributes import compute_annotations


def load_from_class(m: Any, cls: type, name: str) -> Any:
    meta = type(cls)
    if meta is not type:
        custom, owner = lookup(m, meta, "__getattribute__")
        if isinstance(custom, FunctionType) and not is_trusted_type(owner):
            return m.call(object_polyfills.get_attribute, (cls, name), {})
    return load_from_class_plainly(m, cls, meta, name)


def load_from_class_plainly(m: Any, cls: type, meta: type, name: str) -> Any:
    """``type.__getattribute__`` with the ``__getattr__`` fallback."""
    on_meta, on_meta_owner = lookup(m, meta, name)
    if on_meta_owner is type or on_meta_owner is object:
        if name in FACTS:
            return fact_of_class(m, cls, name)
    elif on_meta is not MISSING and is_data_descriptor(on_meta):
        # It comes before anything that the class has.
        if is_property(m, type(on_meta)) and getter_of(on_meta) is not None:
            return m.call(getter_of(on_meta), (cls,), {})
        return bind(m, on_meta, cls, meta, on_meta_owner, name)
    if name in COMPUTED and name not in cls.__dict__:
        if name == "__annotations__":
            compute_annotations(m, cls)
        m.plainly(getattr, cls, name)  # the class gets a table of its own, whatever its bases have
        name = COMPUTED[name] if COMPUTED[name] in cls.__dict__ else name
    descriptor, owner = lookup(m, cls, name)
    if descriptor is MISSING:
        if isinstance(on_meta, FunctionType):
            return MethodType(on_meta, cls)
        guard_absent(m, cls, name)
        if on_meta is not MISSING and not hasattr(type(on_meta), "__get__"):
            return class_value(m, on_meta, on_meta_owner, name)
        fallback, fallback_owner = lookup(m, meta, "__getattr__")
        if on_meta is MISSING and isinstance(fallback, FunctionType) and not is_trusted_type(fallback_owner):
            return m.call(fallback, (cls, name), {})
        return m.heap.adopt(m.plainly(getattr, cls, name))
    kind = type(descriptor)
    if kind is FunctionType:
        return descriptor
    if is_classmethod(m, kind):
        return bind_function(m, descriptor.__func__, cls)
    if kind is staticmethod:
        return descriptor.__func__
    if kind in C_DESCRIPTORS or kind is property or kind in (MemberDescriptorType, GetSetDescriptorType):
        return m.plainly(getattr, cls, name)
    getter = find_on_type(kind, "__get__")
    if isinstance(getter, FunctionType) and not is_trusted_type(kind):
        return m.call(getter, (descriptor, None, cls), {})
    if getter is not None:
        return m.plainly(getattr, cls, name)
    return class_value(m, descriptor, owner, name)


COMPUTED = {"__annotations__": "__annotations_cache__"}
"""Attributes that a class stores when they are first read, and from Python 3.14 on under which name."""
if BEHAVIOR.annotations_are_computed:
    COMPUTED["__annotate__"] = "__annotate_func__"

FACTS = frozenset(
    ("__dict__", "__mro__", "__name__", "__qualname__", "__module__", "__bases__", "__class__", "__doc__")
)
"""What ``type`` computes from a class. Each of them can be assigned."""


def fact_of_class(m: Any, cls: type, name: str) -> Any:
    if name == "__doc__":
        doc = table_of_class(cls).get(name)
        getter = find_on_type(type(doc), "__get__")
        if isinstance(getter, FunctionType):
            lookup(m, cls, name)
            return m.call(getter, (doc, None, cls), {})
    value = m.plainly(type.__getattribute__, cls, name)
    if is_trusted_type(cls) or id(cls) in m.heap.fresh:
        return value
    if (cls, HELD_WEAKLY) in m.lookups and name in ("__name__", "__qualname__", "__module__"):
        m.guard_outcome(Expression(is_named, (weakref.ref(cls), type(cls), name, value)), True)
        return value
    guard_order(m, cls)
    if name in ("__name__", "__qualname__"):
        m.heap.guard("equal", m.heap.sources.pin(cls).attr(name), value)
    elif name in ("__module__", "__doc__"):
        m.heap.read_key(m.heap.members(cls), name)
    return m.heap.members(cls).obj if name == "__dict__" else value


HELD_WEAKLY = "a guard must not keep it alive"
"""In ``lookups``: a class found by ``__subclasses__``, which may be collected."""


def is_named(find: Any, kind: type, name: str, value: Any) -> bool:
    cls = find()
    return type(cls) is kind and type.__getattribute__(cls, name) == value


def guard_text(m: Any, cls: type) -> None:
    """The text of a class is about to be read: ``<class 'module.name'>``."""
    text, owner = lookup(m, type(cls), "__repr__")
    if isinstance(text, FunctionType) and not is_trusted_type(owner):
        m.stop(breaks.OPAQUE_CALL, f"the text of {cls.__qualname__}, whose metaclass makes it")
    if owner is type:
        for name in ("__module__", "__qualname__"):
            fact_of_class(m, cls, name)


# The fields of a super object: asked of it by name, each would be looked for in all of its classes first.
_start_of, _self_of, _kind_of = (vars(super)[name].__get__ for name in ("__thisclass__", "__self__", "__self_class__"))


def load_from_super(m: Any, proxy: Any, name: str) -> Any:
    start, obj, kind = _start_of(proxy), _self_of(proxy), _kind_of(proxy)
    if name == "__class__":
        return super
    value, base = (MISSING, None) if obj is None else lookup_after(m, kind, start, name)
    if base is None:
        return m.plainly(getattr, proxy, name)
    value_kind = type(value)
    if value_kind is FunctionType:
        return value if obj is kind else MethodType(value, obj)
    if is_property(m, value_kind) and isinstance(getter_of(value), FunctionType) and obj is not kind:
        return m.call(getter_of(value), (obj,), {})
    if is_classmethod(m, value_kind):
        return bind_function(m, value.__func__, kind)
    getter = find_on_type(value_kind, "__get__")
    if obj is kind:
        if value_kind is staticmethod:
            return value.__func__
        if isinstance(getter, FunctionType):
            return m.call(getter, (value, None, kind), {})
    if (
        getter is not None
        and not isinstance(getter, FunctionType)
        and value_kind not in (staticmethod, functools.cached_property)
    ):
        return m.plainly(getattr, proxy, name)
    if value_kind in C_DESCRIPTORS or value_kind in (MemberDescriptorType, GetSetDescriptorType):
        return m.plainly(getattr, proxy, name)
    return bind(m, value, obj, kind, base, name)
