"""Descriptor binding: what a class attribute becomes when it is read through an instance or a class.

    special_method(m, table, "__len__")        # the method of type(table), bound to table

A ``__get__`` in Python is interpreted.
"""

from __future__ import annotations

import functools
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import Any

from ... import breaks
from ...engine.interpreted_or_native import HEAP_TYPE, find_on_type, is_trusted_type
from ...interpreter.frames import MISSING
from ...interpreter.versions.behavior import BEHAVIOR
from ...numbers.live_scalars import Live
from ..polyfills import object_polyfills
from .class_lookup import lookup

C_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType, BuiltinFunctionType)


def bind(m: Any, value: Any, obj: Any, kind: type, owner: type | None, name: str) -> Any:
    """What a class attribute becomes when read through an instance."""
    value_kind = type(value)
    if value_kind is FunctionType:
        return MethodType(value, obj)
    if is_classmethod(m, value_kind):
        return bind_function(m, value.__func__, kind)
    if value_kind is staticmethod:
        return value.__func__
    if value_kind in C_DESCRIPTORS:
        return m.plainly(reader_of(m, kind), obj, name)
    if value_kind is functools.cached_property:
        return m.call(object_polyfills.read_cached_property, (value, obj), {})
    getter = find_on_type(value_kind, "__get__")
    if isinstance(getter, FunctionType):
        return m.call(getter, (value, obj, kind), {})
    if getter is not None:
        return m.plainly(reader_of(m, kind), obj, name)
    return class_value(m, value, owner, name)


def is_data_descriptor(value: Any) -> bool:
    """Whether it comes before what an object has under its name."""
    return any(find_on_type(type(value), name) is not None for name in ("__set__", "__delete__"))


def reader_of(m: Any, kind: type) -> Any:
    """What reads an attribute natively: not by a ``__getattribute__`` in Python, which has been called by then."""
    return object.__getattribute__ if isinstance(lookup(m, kind, "__getattribute__")[0], FunctionType) else getattr


def is_classmethod(m: Any, kind: type) -> bool:
    """Whether its objects bind as ``classmethod`` does: ``abc.abstractclassmethod`` is a subclass of it."""
    return (
        kind is classmethod
        or issubclass(kind, classmethod)
        and lookup(m, kind, "__get__")[0] is classmethod.__dict__["__get__"]
    )


def is_property(m: Any, kind: type) -> bool:
    """Whether its objects are read as those of ``property`` are."""
    return (
        kind is property
        or issubclass(kind, property)
        and not is_trusted_type(kind)
        and lookup(m, kind, "__get__")[0] is property.__dict__["__get__"]
    )


getter_of = property.__dict__["fget"].__get__
"""What a property calls: not asked by name, which a subclass may use for something else."""


def bind_function(m: Any, function: Any, target: type) -> Any:
    """What ``classmethod(function)`` is through ``target``."""
    if isinstance(function, FunctionType):
        return MethodType(function, target)
    getter = find_on_type(type(function), "__get__") if BEHAVIOR.classmethod_wraps_descriptors else None
    if getter is None:
        return MethodType(function, target)
    if isinstance(getter, FunctionType):
        return m.call(getter, (function, target, target), {})  # it wraps other descriptors, on older Python
    return m.plainly(getter, function, target, target)


def class_value(m: Any, value: Any, owner: type | None, name: str) -> Any:
    if owner is None or is_trusted_type(owner) and not (type(value) is bool and owner.__flags__ & HEAP_TYPE):
        return m.heap.adopt(value)  # a bool is a switch: ``Distribution.set_default_validate_args``
    table = m.heap.members(owner)
    return value if table is None else m.heap.read_key(table, name)


def special_method(m: Any, obj: Any, name: str) -> Any:
    """A special method bound to ``obj``; looked up on the type, as CPython does. MISSING when there is none."""
    if issubclass(type(obj), Live):
        return MISSING  # its own operators are ours: the caller applies them natively
    kind = type(obj)
    value, owner = lookup(m, kind, name)
    if value is MISSING or value is None:
        return MISSING
    value_kind = type(value)
    if value_kind in C_DESCRIPTORS:  # not by name: an alias such as ``list[int]`` has attributes of its class
        return m.plainly(value.__get__, obj, kind) if hasattr(value_kind, "__get__") else value
    if value_kind is property or isinstance(find_on_type(value_kind, "__get__"), FunctionType):
        m.stop(breaks.OPAQUE_CALL, f"a {value_kind.__qualname__} as {name} of a {kind.__qualname__}")
    return bind(m, value, obj, kind, owner, name)
