"""Attributes of Python modules: names of trusted modules are fixed; others, and builtins, are guarded."""

from __future__ import annotations

import builtins
from types import FunctionType, ModuleType
from typing import Any

from ...engine.interpreted_or_native import find_on_type, is_rebound, is_trusted, is_trusted_namespace, is_trusted_type
from ...interpreter.frames import MISSING
from ...interpreter.reads_past_overrides import dict_of
from ..polyfills import object_polyfills
from .class_lookup import lookup
from .instance_attributes import load_by_rules


def load_from_module(m: Any, module: ModuleType, name: str) -> Any:
    kind = type(module)
    if not is_trusted(dict_of(module).get("__name__")):
        m.heap.guard_kind(module)
    if kind is not ModuleType and not is_trusted_type(kind):
        custom, _ = lookup(m, kind, "__getattribute__")
        if isinstance(custom, FunctionType):
            return m.call(object_polyfills.get_attribute, (module, name), {})
    return load_from_module_plainly(m, module, name)


def load_from_module_plainly(m: Any, module: ModuleType, name: str) -> Any:
    """``ModuleType.__getattribute__``."""
    namespace = dict_of(module)
    names = m.fixed_names.get(id(namespace))
    if names is not None and name in names and namespace.get(name, MISSING) is names[name]:
        return names[name]
    is_fixed = is_trusted(namespace.get("__name__")) and module is not builtins
    if is_fixed and not (name in namespace and is_rebound(namespace, name)):
        if name not in namespace and find_on_type(type(module), name) is not None:
            return load_by_rules(m, module, type(module), name)  # torch.backends.cudnn.benchmark asks torch each time
        value = m.plainly(getattr, module, name)
        if name not in namespace:
            return m.heap.adopt(value)
        m.heap.adopt_named(namespace, name, value)
        if is_trusted_namespace(namespace) and namespace[name] is value:
            m.fixed_names.setdefault(id(namespace), {})[name] = value
        return value
    value = m.heap.read_key(m.heap.namespace(namespace), name)
    if value is not MISSING:
        return value
    fallback = m.heap.read_key(m.heap.namespace(namespace), "__getattr__")
    if isinstance(fallback, FunctionType):
        return m.call(fallback, (name,), {})
    if type(module) is not ModuleType:
        return load_by_rules(m, module, type(module), name)
    return m.heap.adopt(m.plainly(getattr, module, name))  # a submodule, or an error
