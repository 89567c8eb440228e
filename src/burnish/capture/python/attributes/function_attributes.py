"""Attributes of functions: their closure, their defaults and what the user stored on them."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ...engine.interpreted_or_native import is_trusted
from ...interpreter.frames import MISSING

CELLS_AND_DEFAULTS = frozenset(("__closure__", "__defaults__", "__kwdefaults__", "__wrapped__"))

NAMESPACES = frozenset(("__globals__", "__builtins__"))
TOLD = frozenset(("__name__", "__qualname__", "__doc__", "__module__"))


def load_from_function(m: Any, function: FunctionType, name: str) -> Any:
    if name == "__dict__":
        m.heap.members(function)
        return function.__dict__
    if hasattr(FunctionType, name):
        value = m.plainly(getattr, function, name)
        origin = m.heap.origin_of(function)
        if name in NAMESPACES and id(value) not in m.heap.fresh:
            m.heap.namespace(value)
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
