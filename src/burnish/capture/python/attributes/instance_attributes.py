"""Attributes of ordinary objects: data descriptors, the instance dictionary, the class, ``__getattr__``.

The rules that apply to a name depend on the class alone. Where they come down to the instance dictionary and then the
class, they are kept as an ``AttributePlan``.
"""

from __future__ import annotations

import enum
import weakref
from dataclasses import dataclass
from types import DynamicClassAttribute, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any

import torch

from ... import breaks
from ...engine.interpreted_or_native import find_on_type, is_trusted_type
from ...interpreter.frames import MISSING
from ...interpreter.reads_past_overrides import dict_of
from ..polyfills import object_polyfills
from .class_lookup import guard_absent, lookup
from .descriptor_binding import bind, class_value, getter_of, is_property, reader_of

OF_DICTS = (dict.get, dict.__getitem__, dict.__setitem__, dict.__delitem__)
"""What classes of dictionaries name as their ``__getattr__`` and so on, to have their keys as attributes."""
PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
MODULE_TABLES = ("_parameters", "_buffers", "_modules")
MODULE_GETATTR = torch.nn.Module.__getattr__


@dataclass(slots=True, eq=False)
class AttributePlan:
    """How an attribute is read where CPython's rules come down to the instance dictionary and then the class."""

    method: FunctionType | None
    value: Any
    """What the class has else under the name, nothing that is asked for its value; or MISSING."""
    owner: type | None
    looks_further: bool
    """Whether ``nn.Module`` looks into its tables then."""


def plan_for(m: Any, kind: type, name: str) -> AttributePlan | None:
    """None where the rules have to be followed."""
    if type(find_on_type(kind, "__dict__")) is not GetSetDescriptorType:
        return None  # it has no dictionary, or shows another one
    found, owner = lookup(m, kind, name)
    if type(found) is FunctionType:
        return AttributePlan(found, MISSING, owner, False)
    if found is MISSING:
        return AttributePlan(None, MISSING, None, lookup(m, kind, "__getattr__")[0] is MODULE_GETATTR)
    if any(find_on_type(type(found), asked) is not None for asked in ("__get__", "__set__", "__delete__")):
        return None
    return AttributePlan(None, found, owner, False)


def load_from_instance(m: Any, obj: Any, name: str) -> Any:
    kind = type(obj)
    key = (kind, name)
    plan = m.plans.get(key, m)  # the tracer itself: not known yet
    if plan is m:
        is_plain = lookup(m, kind, "__getattribute__")[0] is object.__getattribute__
        plan = m.plans[key] = plan_for(m, kind, name) if is_plain else None
    if plan is not None:
        origin = m.origins.get(id(obj))
        if origin is not None and origin.obj is obj:
            table = obj.__dict__  # of a type whose objects have one, and that finds attributes the plain way
            members = origin.members
            if members is None or members.obj is not table:
                members = m.heap.members_in(origin, table)
            value = table.get(name, MISSING)
            if members.known.get(name) != id(value):
                value = m.heap.read_key(members, name)
            if value is not MISSING:
                return value
            if plan.method is not None:
                return MethodType(plan.method, obj)
            if plan.value is not MISSING:
                return class_value(m, plan.value, plan.owner, name)
            if plan.looks_further:
                for table_name in MODULE_TABLES:
                    part = table.get(table_name)
                    if part is not None and name in part:
                        origin = m.origins.get(id(part))
                        if origin is None:
                            origin = m.heap.module_table(members, table_name, part)
                        value = part[name]
                        return value if origin.known.get(name) == id(value) else m.heap.read_key(origin, name)
        return load_by_rules(m, obj, kind, name)
    custom, owner = lookup(m, kind, "__getattribute__")
    if isinstance(custom, FunctionType) and not is_trusted_type(owner):
        return m.call(object_polyfills.get_attribute, (obj, name), {})
    if kind in PROXIES:
        return m.stop(breaks.OPAQUE_CALL, f".{name} through a weak proxy")
    if custom is not MISSING and isinstance(getattr(type(custom), "__get__", None), FunctionType):
        return m.stop(breaks.OPAQUE_CALL, f".{name} by a descriptor that is __getattribute__ of {kind.__qualname__}")
    return load_by_rules(m, obj, kind, name)


def load_past_own_rules(m: Any, obj: Any, kind: type, name: str) -> Any:
    """What ``object.__getattribute__`` finds for a class that has one of its own and asks there in the end."""
    key = (kind, name, "plainly")
    plan = m.plans.get(key, m)
    if plan is m:
        plan = m.plans[key] = plan_for(m, kind, name)
    if plan is not None:
        origin = m.origins.get(id(obj))
        if origin is not None and origin.obj is obj:
            members, table = origin.members, dict_of(obj)
            if members is not None and members.obj is table:
                value = table.get(name, MISSING)
                if members.known.get(name) != id(value):
                    value = m.heap.read_key(members, name)
                if value is not MISSING:
                    return value
                if plan.method is not None:
                    return MethodType(plan.method, obj)
                if plan.value is not MISSING:
                    return class_value(m, plan.value, plan.owner, name)
    return load_by_rules(m, obj, kind, name)


def load_by_rules(m: Any, obj: Any, kind: type, name: str) -> Any:
    descriptor, owner = lookup(m, kind, name)
    if descriptor is not MISSING:
        value = _load_from_descriptor(m, obj, kind, name, descriptor)
        if value is not MISSING:
            return value
    table = table_of(m, obj, name)
    if table is not None:
        members = m.heap.members(obj)
        if members is None:
            if name in table:
                return table[name]
        else:
            value = m.heap.read_key(members, name)
            if value is not MISSING:
                return value
    if descriptor is not MISSING:
        return bind(m, descriptor, obj, kind, owner, name)
    fallback, owner = lookup(m, kind, "__getattr__")
    for missing in (name, "__getattr__") if fallback is MISSING else (name,):
        if (kind, missing, "absent") not in m.lookups:
            m.lookups[kind, missing, "absent"] = (MISSING, None)
            guard_absent(m, kind, missing)
    if fallback is MODULE_GETATTR:
        value = load_from_tables(m, obj, name)
        if value is not MISSING:
            return value
        return m.plainly(reader_of(m, kind), obj, name)
    if isinstance(fallback, FunctionType) or fallback in OF_DICTS:
        return m.call(fallback, (obj, name), {})
    return m.plainly(reader_of(m, kind), obj, name)


def _load_from_descriptor(m: Any, obj: Any, kind: type, name: str, descriptor: Any) -> Any:
    """What a data descriptor of its class gives: it goes before the object's own dictionary."""
    descriptor_kind = type(descriptor)
    if is_property(m, descriptor_kind):
        fget = getter_of(descriptor)
        return m.plainly(reader_of(m, kind), obj, name) if fget is None else read_property(m, obj, kind, name, fget)
    if descriptor_kind is MemberDescriptorType:
        guard_unset(m, obj, descriptor, name)
        return m.heap.read_field(obj, name, lambda: m.plainly(reader_of(m, kind), obj, name))
    if descriptor_kind is GetSetDescriptorType:
        return load_c_field(m, obj, name)
    if hasattr(descriptor_kind, "__set__") or hasattr(descriptor_kind, "__delete__"):
        getter = find_on_type(descriptor_kind, "__get__")
        if getter in OF_ENUMERATIONS and descriptor.fget is not None:
            return read_property(m, obj, kind, name, descriptor.fget)
        if isinstance(getter, FunctionType):
            return m.call(getter, (descriptor, obj, kind), {})
        if getter is not None:
            return m.plainly(reader_of(m, kind), obj, name)
    return MISSING


OF_ENUMERATIONS = (DynamicClassAttribute.__get__, enum.property.__get__)
"""These belong to modules that run natively, and would call the user's function there. For objects they do no more."""


def read_property(m: Any, obj: Any, kind: type, name: str, fget: Any) -> Any:
    if isinstance(fget, FunctionType) and lookup(m, kind, "__getattr__")[0] is not MISSING:
        return m.call(object_polyfills.read_property, (fget, obj, name), {})
    return m.call(fget, (obj,), {})


def guard_unset(m: Any, obj: Any, descriptor: MemberDescriptorType, name: str) -> None:
    """That a slot of an object from outside has no value, if so."""
    origin = m.heap.origin_of(obj)
    if origin is not None and name not in origin.written and is_unset(obj, descriptor):
        m.heap.guard_answer(is_unset, origin.source, descriptor)


def is_unset(obj: Any, descriptor: MemberDescriptorType) -> bool:
    try:
        descriptor.__get__(obj)
    except AttributeError:
        return True
    return False


def table_of(m: Any, obj: Any, name: str) -> Any:
    """``dict_of``. If a class hides the dictionary of its objects, as that of type variables does, only plain Python
    finds what is there."""
    table = dict_of(obj)
    if table is None and type(obj).__dictoffset__:
        m.stop(breaks.OPAQUE_CALL, f".{name} of a {type(obj).__qualname__}, which hides its dictionary")
    return table


def load_from_tables(m: Any, obj: Any, name: str) -> Any:
    """A parameter, buffer or submodule of an ``nn.Module``."""
    for table_name in MODULE_TABLES:
        table = dict_of(obj).get(table_name)
        if table is not None and name in table:
            members = m.heap.members(obj)
            if members is None:
                return table[name]
            return m.heap.read_key(m.heap.module_table(members, table_name, table), name)
    members = m.heap.members(obj)
    for table_name in MODULE_TABLES if members is not None else ():
        table = dict_of(obj).get(table_name)
        if table is not None:
            m.heap.read_key(m.heap.module_table(members, table_name, table), name)  # that it is not there
    return MISSING


def load_c_field(m: Any, obj: Any, name: str) -> Any:
    if name == "__dict__":
        m.heap.members(obj)
        return dict_of(obj)
    if name == "__class__":
        return type(obj)
    return m.heap.read_field(obj, name, lambda: m.plainly(getattr, obj, name))
