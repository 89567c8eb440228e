"""Attributes of functions: their closure, their defaults and what the user stored on them."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ...engine.interpreted_or_native import is_trusted
from ...interpreter.frames import MISSING

NAMESPACES = frozenset(("__globals__", "__builtins__"))
CELLS_AND_DEFAULTS = frozenset(("__closure__", "__defaults__", "__kwdefaults__"))
SHOWN = frozenset("__name__ __qualname__ __doc__ __module__ __annotations__ __type_params__".split())
"""What may be assigned to a function, and what differs between functions of one code."""


def load_from_function(m: Any, function: FunctionType, name: str) -> Any:
    if name == "__dict__":
        m.heap.members(function)
        return function.__dict__
    if hasattr(FunctionType, name):
        value = m.plainly(getattr, function, name)
        if name in NAMESPACES and id(value) not in m.heap.fresh:
            m.heap.namespace(value)
        if id(function) in m.heap.fresh or name not in CELLS_AND_DEFAULTS and is_trusted(function.__module__):
            return value
        origin = m.heap.origin_of(function)
        source = (m.heap.sources.pin(function) if origin is None else origin.source).attr(name)
        if name == "__code__":
            m.heap.guard("is", source, value)
        elif name in CELLS_AND_DEFAULTS or name in SHOWN:
            return m.heap.admit(value, source)
        return value
    if is_trusted(function.__module__) and id(function) not in m.heap.fresh:
        return m.heap.adopt(m.plainly(getattr, function, name))
    members = m.heap.members(function)
    if members is None:
        return m.plainly(getattr, function, name)
    value = m.heap.read_key(members, name)
    return m.plainly(getattr, function, name) if value is MISSING else value
