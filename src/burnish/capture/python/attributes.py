"""Attribute access while tracing: CPython's lookup, step by step, with every step that reads state guarded.

``type(obj).__mro__`` decides first (data descriptors), then the instance dictionary, then the class again, then
``__getattr__``. Python code found on the way (properties, descriptors, ``__getattr__``) is interpreted.
"""

from __future__ import annotations

import functools
import sys
import weakref
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NoReturn

import torch

from .. import breaks
from ..engine.interpreted_or_native import find_on_type, is_trusted, is_trusted_namespace, is_trusted_type
from ..engine.object_lifetimes import remember
from ..guards.tensor_metadata import TENSOR_TYPES, has_rules, is_tensor
from ..interpreter.frames import MISSING, Generator
from ..interpreter.reads_past_overrides import dict_of
from ..numbers import numpy_kinds
from ..numbers.live_scalars import Live
from . import builtin_polyfills

NATIVE_TYPES = (
    frozenset(
        (
            int,
            float,
            complex,
            bool,
            str,
            bytes,
            list,
            dict,
            tuple,
            set,
            frozenset,
            type(None),
            slice,
            range,
            torch.dtype,
            torch.device,
            torch.Size,
            BuiltinFunctionType,
            MethodDescriptorType,
            WrapperDescriptorType,
            type({}.keys()),
            type({}.values()),
            type({}.items()),
            Generator,
            torch.finfo,
            torch.iinfo,
            bytearray,
            memoryview,
            functools.partial,
        )
    )
    | numpy_kinds.FACTS
    | numpy_kinds.DTYPES
)
C_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType, BuiltinFunctionType)
OF_DICTS = (dict.get, dict.__getitem__, dict.__setitem__, dict.__delitem__)
"""What classes of dictionaries name as their ``__getattr__`` and so on, to have their keys as attributes."""
PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
MODULE_TABLES = ("_parameters", "_buffers", "_modules")
MODULE_GETATTR = torch.nn.Module.__getattr__


def load(m: Any, obj: Any, name: str) -> Any:
    kind = type(obj)
    loader = _loaders.get(kind)
    if loader is None:
        loader = remember(_loaders, kind, _loader_for(kind))
    return loader(m, obj, name)


_loaders: dict[type, Any] = {}


def _loader_for(kind: type) -> Any:
    """How attributes of this type's objects are read. ``isinstance`` is dear for tensors: it is asked once a type."""
    if kind in NATIVE_TYPES:
        return _load_natively
    if issubclass(kind, torch.Tensor):
        return _load_from_tensor
    if issubclass(kind, type):
        return _load_from_class
    if issubclass(kind, ModuleType):
        return _load_from_module
    if kind is FunctionType:
        return _load_from_function
    if issubclass(kind, Live):
        return lambda m, obj, name: m.plainly(getattr, obj.settle(), name)
    if kind is super:
        return _load_from_super
    if kind is MethodType:
        return _load_from_method
    if kind in numpy_kinds.NUMBERS or kind is numpy_kinds.ARRAY:
        return _load_from_numpy
    return _load_from_instance


def _load_from_numpy(m: Any, obj: Any, name: str) -> Any:
    if type(obj) is not numpy_kinds.ARRAY:
        return (_load_natively if m.heap.origin_of(obj) is None else _load_from_instance)(m, obj, name)
    if m.arrays.get(id(obj)) is not obj:
        return _load_from_instance(m, obj, name)
    value = _load_natively(m, obj, name)
    if type(value) is numpy_kinds.ARRAY:
        m.arrays[id(value)] = value  # its transpose, say
    elif not isinstance(value, (int, tuple, BuiltinFunctionType)) and type(value) not in numpy_kinds.DTYPES:
        m.stop(breaks.OPAQUE_CALL, f".{name} of an array")
    return value


def _load_natively(m: Any, obj: Any, name: str) -> Any:
    try:
        return getattr(obj, name)
    except AttributeError:
        return m.plainly(getattr, obj, name)  # which raises it in the program


def _load_from_method(m: Any, obj: MethodType, name: str) -> Any:
    if hasattr(MethodType, name):
        return getattr(obj, name)
    return load(m, obj.__func__, name)


def lookup(m: Any, kind: type, name: str) -> tuple[Any, type | None]:
    """(what the class has under ``name``, the class that has it), guarded where classes may change."""
    key = (kind, name)
    found = m.lookups.get(key)
    if found is None:
        found = (MISSING, None)
        for base in kind.__mro__:
            if name in base.__dict__:
                found = (base.__dict__[name], base)
                break
        m.lookups[key] = found
        value, owner = found
        guard_order(m, kind)
        if owner is not None:
            _guard_absent(m, kind, name, owner)
        if owner is not None and is_trusted_type(owner):
            m.heap.adopt(value)
        elif owner is not None:
            source = m.heap.sources.pin(owner).members
            if isinstance(value, (FunctionType, property, staticmethod, classmethod)) or hasattr(
                type(value), "__get__"
            ):
                m.heap.guard("is", source.item(name), value)
                m.heap.adopt_pinned(value)
                if isinstance(value, FunctionType):
                    m.heap.pinned_functions.add(id(value))
    return found


def guard_order(m: Any, kind: type) -> None:
    """That a class keeps its bases: ``__bases__`` may be assigned, its own or those of one that it inherits from."""
    if (kind, "the order of its bases") not in m.lookups:
        m.lookups[kind, "the order of its bases"] = (MISSING, None)
        if not is_trusted_type(kind) and id(kind) not in m.heap.fresh:
            order = type.__dict__["__mro__"].__get__(kind)
            m.heap.guard("is", m.heap.sources.pin(kind).attr("__mro__"), order)


def _guard_absent(m: Any, kind: type, name: str, owner: type | None = None) -> None:
    """That no class before ``owner`` is given the name, which would come first then."""
    for base in kind.__mro__:
        if base is owner:
            return
        if not is_trusted_type(base):
            m.heap.guard("absent", m.heap.sources.pin(base).members, name)


@dataclass(slots=True, eq=False)
class AttributePlan:
    """How an attribute is read where CPython's rules come down to the instance dictionary and then the class."""

    method: FunctionType | None
    value: Any
    """What the class has else under the name, nothing that is asked for its value; or MISSING."""
    owner: type | None
    looks_further: bool
    """Whether ``nn.Module`` looks into its tables then."""


def _plan_for(m: Any, kind: type, name: str) -> AttributePlan | None:
    """None where the rules have to be followed."""
    if type(find_on_type(kind, "__dict__")) is not GetSetDescriptorType:
        return None
    found, owner = lookup(m, kind, name)
    if type(found) is FunctionType:
        return AttributePlan(found, MISSING, owner, False)
    if found is MISSING:
        return AttributePlan(None, MISSING, None, lookup(m, kind, "__getattr__")[0] is MODULE_GETATTR)
    if any(find_on_type(type(found), asked) is not None for asked in ("__get__", "__set__", "__delete__")):
        return None
    return AttributePlan(None, found, owner, False)


def _load_from_instance(m: Any, obj: Any, name: str) -> Any:
    kind = type(obj)
    key = (kind, name)
    plan = m.plans.get(key, m)  # the tracer itself: not known yet
    if plan is m:
        is_plain = lookup(m, kind, "__getattribute__")[0] is object.__getattribute__
        plan = m.plans[key] = _plan_for(m, kind, name) if is_plain else None
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
                return _class_value(m, plan.value, plan.owner, name)
            if plan.looks_further:
                for table_name in MODULE_TABLES:
                    part = table.get(table_name)
                    if part is not None and name in part:
                        origin = m.origins.get(id(part))
                        if origin is None:
                            origin = m.heap.module_table(members, table_name, part)
                        value = part[name]
                        return value if origin.known.get(name) == id(value) else m.heap.read_key(origin, name)
        return _load_by_rules(m, obj, kind, name)
    custom, owner = lookup(m, kind, "__getattribute__")
    if isinstance(custom, FunctionType) and not is_trusted_type(owner):
        return m.call(builtin_polyfills.get_attribute, (obj, name), {})
    if kind in PROXIES:
        return m.stop(breaks.OPAQUE_CALL, f".{name} through a weak proxy")
    return _load_by_rules(m, obj, kind, name)


def _load_past_own_rules(m: Any, obj: Any, kind: type, name: str) -> Any:
    """What ``object.__getattribute__`` finds for a class that has one of its own and asks there in the end."""
    key = (kind, name, "plainly")
    plan = m.plans.get(key, m)
    if plan is m:
        plan = m.plans[key] = _plan_for(m, kind, name)
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
                    return _class_value(m, plan.value, plan.owner, name)
    return _load_by_rules(m, obj, kind, name)


def load_plainly(m: Any, obj: Any, name: str) -> Any:
    """``object.__getattribute__`` with the ``__getattr__`` fallback."""
    kind = type(obj)
    # By the class alone: an object may say anything about its ``__class__``, and run the user's code to say it.
    if issubclass(kind, type):
        return _load_from_class_plainly(m, obj, kind, name)
    if kind in NATIVE_TYPES or issubclass(kind, ModuleType) or is_tensor(obj):
        return load(m, obj, name)
    return _load_past_own_rules(m, obj, kind, name)


def _load_by_rules(m: Any, obj: Any, kind: type, name: str) -> Any:
    descriptor, owner = lookup(m, kind, name)
    if descriptor is not MISSING:
        descriptor_kind = type(descriptor)
        if descriptor_kind is property:
            if descriptor.fget is None:
                return m.plainly(getattr, obj, name)
            if isinstance(descriptor.fget, FunctionType) and lookup(m, kind, "__getattr__")[0] is not MISSING:
                return m.call(builtin_polyfills.read_property, (descriptor.fget, obj, name), {})
            return m.call(descriptor.fget, (obj,), {})
        if descriptor_kind is MemberDescriptorType:
            return m.heap.read_field(obj, name, lambda: m.plainly(getattr, obj, name))
        if descriptor_kind is GetSetDescriptorType:
            return _load_c_field(m, obj, name)
        if hasattr(descriptor_kind, "__set__") or hasattr(descriptor_kind, "__delete__"):
            getter = find_on_type(descriptor_kind, "__get__")
            if isinstance(getter, FunctionType):
                return m.call(getter, (descriptor, obj, kind), {})
            if getter is not None:
                return m.plainly(getattr, obj, name)
    table = dict_of(obj)
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
        return _bind(m, descriptor, obj, kind, owner, name)
    fallback, owner = lookup(m, kind, "__getattr__")
    for missing in (name, "__getattr__") if fallback is MISSING else (name,):
        if (kind, missing, "absent") not in m.lookups:
            m.lookups[kind, missing, "absent"] = (MISSING, None)
            _guard_absent(m, kind, missing)
    if fallback is MODULE_GETATTR:
        value = _load_from_tables(m, obj, name)
        if value is not MISSING:
            return value
        return m.plainly(getattr, obj, name)
    if isinstance(fallback, FunctionType) or fallback in OF_DICTS:
        return m.call(fallback, (obj, name), {})
    return m.plainly(getattr, obj, name)


def _load_from_tables(m: Any, obj: Any, name: str) -> Any:
    """A parameter, buffer or submodule of an ``nn.Module``."""
    for table_name in MODULE_TABLES:
        table = obj.__dict__.get(table_name)
        if table is not None and name in table:
            members = m.heap.members(obj)
            if members is None:
                return table[name]
            return m.heap.read_key(m.heap.module_table(members, table_name, table), name)
    members = m.heap.members(obj)
    for table_name in MODULE_TABLES if members is not None else ():
        table = obj.__dict__.get(table_name)
        if table is not None:
            m.heap.read_key(m.heap.module_table(members, table_name, table), name)  # that it is not there
    return MISSING


def _bind(m: Any, value: Any, obj: Any, kind: type, owner: type | None, name: str) -> Any:
    """What a class attribute becomes when read through an instance."""
    value_kind = type(value)
    if value_kind is FunctionType:
        return MethodType(value, obj)
    if is_classmethod(m, value_kind):
        return _bind_function(m, value.__func__, kind)
    if value_kind is staticmethod:
        return value.__func__
    if value_kind in C_DESCRIPTORS:
        return m.plainly(getattr, obj, name)
    if value_kind is functools.cached_property:
        return m.call(builtin_polyfills.read_cached_property, (value, obj), {})
    getter = find_on_type(value_kind, "__get__")
    if isinstance(getter, FunctionType):
        return m.call(getter, (value, obj, kind), {})
    if getter is not None:
        return m.plainly(getattr, obj, name)
    return _class_value(m, value, owner, name)


def is_classmethod(m: Any, kind: type) -> bool:
    """Whether its objects bind as ``classmethod`` does: ``abc.abstractclassmethod`` is a subclass of it."""
    return (
        kind is classmethod
        or issubclass(kind, classmethod)
        and lookup(m, kind, "__get__")[0] is classmethod.__dict__["__get__"]
    )


def _bind_function(m: Any, function: Any, target: type) -> Any:
    """What ``classmethod(function)`` is through ``target``."""
    if isinstance(function, FunctionType):
        return MethodType(function, target)
    getter = find_on_type(type(function), "__get__") if sys.version_info < (3, 13) else None
    if getter is None:
        return MethodType(function, target)
    if isinstance(getter, FunctionType):
        return m.call(getter, (function, target, target), {})  # it wraps other descriptors, on older Python
    return m.plainly(getter, function, target, target)


def _class_value(m: Any, value: Any, owner: type | None, name: str) -> Any:
    if owner is None or is_trusted_type(owner):
        return m.heap.adopt(value)
    table = m.heap.members(owner)
    return value if table is None else m.heap.read_key(table, name)


def _load_c_field(m: Any, obj: Any, name: str) -> Any:
    if name == "__dict__":
        m.heap.members(obj)
        return dict_of(obj)
    if name == "__class__":
        return type(obj)
    return m.heap.read_field(obj, name, lambda: m.plainly(getattr, obj, name))


# ---- tensors

PLAIN_FACTS = frozenset(
    (
        "shape",
        "dtype",
        "device",
        "ndim",
        "requires_grad",
        "is_leaf",
        "layout",
        "is_cuda",
        "is_sparse",
        "is_quantized",
        "is_meta",
        "is_nested",
        "itemsize",
        "is_cpu",
        "is_mkldnn",
    )
)
DISABLED = torch._C.DisableTorchFunction


def _load_from_tensor(m: Any, obj: torch.Tensor, name: str) -> Any:
    if name in PLAIN_FACTS:
        if type(obj) in (torch.Tensor, torch.nn.Parameter):
            if name == "shape" and m.open_sizes is not None:
                return m.open_sizes.asked("shape", obj, ()) or obj.shape
            return getattr(obj, name)
    elif name == "grad":
        return m.gradients.read(obj)
    kind = type(obj)
    descriptor, owner = lookup(m, kind, name)
    if descriptor is MISSING or kind not in TENSOR_TYPES and not hasattr(type(descriptor), "__set__"):
        value = _of_tensor(m, obj, name)
        if value is not MISSING:
            return value
        if descriptor is MISSING:
            return m.plainly(getattr, obj, name)
    if name == "__dict__":
        if m.heap.members(obj) is None and has_rules(obj):
            _stop_at_own(m, obj, name)
        return obj.__dict__
    if isinstance(descriptor, FunctionType):
        return MethodType(descriptor, obj)
    if isinstance(descriptor, property) and isinstance(descriptor.fget, FunctionType):
        if is_trusted_type(owner):
            return m.perform(getattr, obj, name)
        return m.call(descriptor.fget, (obj,), {})
    if isinstance(descriptor, C_DESCRIPTORS):
        if name == "nbytes" and m.open_sizes is not None:
            m.open_sizes.close(obj)
        return getattr(obj, name)
    if isinstance(descriptor, (classmethod, staticmethod)):
        return _bind(m, descriptor, obj, kind, owner, name)
    return m.perform(getattr, obj, name)


def _of_tensor(m: Any, obj: torch.Tensor, name: str) -> Any:
    """What a tensor object's own dictionary has under a name."""
    members = m.heap.members(obj)
    if members is not None:
        return m.heap.read_key(members, name)
    table = getattr(obj, "__dict__", {})
    if name in table and has_rules(obj):
        _stop_at_own(m, obj, name)
    return table.get(name, MISSING)


def _stop_at_own(m: Any, obj: torch.Tensor, name: str) -> NoReturn:
    """The rules of its class run when the graph does, and may have put it there."""
    m.stop(breaks.OPAQUE_CALL, f"the attribute {name} of a {type(obj).__qualname__} made in the graph")


# ---- classes, modules, functions


def _load_from_class(m: Any, cls: type, name: str) -> Any:
    meta = type(cls)
    if meta is not type:
        custom, owner = lookup(m, meta, "__getattribute__")
        if isinstance(custom, FunctionType) and not is_trusted_type(owner):
            return m.call(builtin_polyfills.get_attribute, (cls, name), {})
    return _load_from_class_plainly(m, cls, meta, name)


def _load_from_class_plainly(m: Any, cls: type, meta: type, name: str) -> Any:
    """``type.__getattribute__`` with the ``__getattr__`` fallback."""
    if name in ("__dict__", "__mro__", "__name__", "__qualname__", "__module__", "__bases__", "__class__", "__doc__"):
        value = getattr(cls, name)
        if name in ("__mro__", "__bases__"):
            guard_order(m, cls)
        if name == "__dict__" and not is_trusted_type(cls):
            return m.heap.admit(value, m.heap.sources.pin(cls).members)
        return value
    descriptor, owner = lookup(m, cls, name)
    if descriptor is MISSING:
        on_meta, on_meta_owner = lookup(m, meta, name)
        if isinstance(on_meta, FunctionType):
            return MethodType(on_meta, cls)
        if isinstance(on_meta, property) and isinstance(on_meta.fget, FunctionType):
            return m.call(on_meta.fget, (cls,), {})
        _guard_absent(m, cls, name)
        if on_meta is not MISSING and not hasattr(type(on_meta), "__get__"):
            return _class_value(m, on_meta, on_meta_owner, name)
        fallback, fallback_owner = lookup(m, meta, "__getattr__")
        if on_meta is MISSING and isinstance(fallback, FunctionType) and not is_trusted_type(fallback_owner):
            return m.call(fallback, (cls, name), {})
        return m.heap.adopt(m.plainly(getattr, cls, name))
    kind = type(descriptor)
    if kind is FunctionType:
        return descriptor
    if is_classmethod(m, kind):
        return _bind_function(m, descriptor.__func__, cls)
    if kind is staticmethod:
        return descriptor.__func__
    if kind in C_DESCRIPTORS or kind is property or kind in (MemberDescriptorType, GetSetDescriptorType):
        return m.plainly(getattr, cls, name)
    getter = find_on_type(kind, "__get__")
    if isinstance(getter, FunctionType) and not is_trusted_type(kind):
        return m.call(getter, (descriptor, None, cls), {})
    if getter is not None:
        return m.plainly(getattr, cls, name)
    return _class_value(m, descriptor, owner, name)


def _load_from_module(m: Any, module: ModuleType, name: str) -> Any:
    namespace = module.__dict__
    names = m.fixed_names.get(id(namespace))
    if names is not None and name in names and namespace.get(name, MISSING) is names[name]:
        return names[name]
    if is_trusted(namespace.get("__name__")):
        if name not in namespace and find_on_type(type(module), name) is not None:
            return _load_by_rules(m, module, type(module), name)  # torch.backends.cudnn.benchmark asks torch each time
        value = m.plainly(getattr, module, name)
        if name not in namespace:
            return m.heap.adopt(value)
        m.heap.adopt_named(namespace, name, value)
        if is_trusted_namespace(namespace) and namespace[name] is value:
            m.fixed_names.setdefault(id(namespace), {})[name] = value
        return value
    value = m.heap.read_key(m.heap.namespace(module.__dict__), name)
    if value is not MISSING:
        return value
    fallback = m.heap.read_key(m.heap.namespace(module.__dict__), "__getattr__")
    if isinstance(fallback, FunctionType):
        return m.call(fallback, (name,), {})
    if type(module) is not ModuleType:
        return _load_by_rules(m, module, type(module), name)
    return m.heap.adopt(m.plainly(getattr, module, name))  # a submodule, or an error


CELLS_AND_DEFAULTS = frozenset(("__closure__", "__defaults__", "__kwdefaults__", "__wrapped__"))


TOLD = frozenset(("__name__", "__qualname__", "__doc__", "__module__"))


def _load_from_function(m: Any, function: FunctionType, name: str) -> Any:
    if name == "__dict__":
        m.heap.members(function)
        return function.__dict__
    if hasattr(FunctionType, name):
        value = m.plainly(getattr, function, name)
        origin = m.heap.origin_of(function)
        if name in CELLS_AND_DEFAULTS and value is not None and origin is not None:
            return m.heap.admit(value, origin.source.attr(name))
        if name in TOLD and origin is not None and not is_trusted(function.__module__):
            return m.heap.admit(value, origin.source.attr(name))  # functions of one code may have several names
        return value
    if is_trusted(function.__module__) and id(function) not in m.heap.fresh:
        return m.heap.adopt(m.plainly(getattr, function, name))
    members = m.heap.members(function)
    if members is None:
        return m.plainly(getattr, function, name)
    value = m.heap.read_key(members, name)
    return m.plainly(getattr, function, name) if value is MISSING else value


# The fields of a super object: asked of it by name, each would be looked for in all of its classes first.
_start_of, _self_of, _kind_of = (vars(super)[name].__get__ for name in ("__thisclass__", "__self__", "__self_class__"))


def _load_from_super(m: Any, proxy: Any, name: str) -> Any:
    start, obj, kind = _start_of(proxy), _self_of(proxy), _kind_of(proxy)
    if name == "__class__":
        return super
    value, base = (MISSING, None) if obj is None else _lookup_after(m, kind, start, name)
    if base is None:
        return m.plainly(getattr, proxy, name)
    value_kind = type(value)
    if value_kind is FunctionType:
        return value if obj is kind else MethodType(value, obj)
    if value_kind is property and isinstance(value.fget, FunctionType) and obj is not kind:
        return m.call(value.fget, (obj,), {})
    if is_classmethod(m, value_kind):
        return _bind_function(m, value.__func__, kind)
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
    return _bind(m, value, obj, kind, base, name)


def _lookup_after(m: Any, kind: type, start: type, name: str) -> tuple[Any, type | None]:
    """As ``lookup``, in the classes that follow ``start`` in the order of ``kind``."""
    key = (kind, start, name)
    found = m.lookups_after.get(key)
    if found is None:
        guard_order(m, kind)
        mro = kind.__mro__
        base = next((base for base in mro[mro.index(start) + 1 :] if name in base.__dict__), None)
        found = m.lookups_after[key] = (MISSING, None) if base is None else (lookup(m, base, name)[0], base)
    return found


def special_method(m: Any, obj: Any, name: str) -> Any:
    """A special method bound to ``obj``; looked up on the type, as CPython does. MISSING when there is none."""
    if isinstance(obj, Live):
        return MISSING  # its own operators are ours: the caller applies them natively
    kind = type(obj)
    value, owner = lookup(m, kind, name)
    if value is MISSING or value is None:
        return MISSING
    return _bind(m, value, obj, kind, owner, name)
