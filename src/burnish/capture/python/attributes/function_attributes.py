"""Attributes of functions: their closure, their defaults and what the user stored on them."""

from __future__ import annotations

import gc
from types import FunctionType
from typing import Any

from ... import breaks
from ...engine.interpreted_or_native import find_on_type, is_trusted, is_trusted_function
from ...interpreter.frames import MISSING, RAISES
from ...interpreter.versions.behavior import BEHAVIOR

NAMESPACES = frozenset(("__globals__", "__builtins__"))
CELLS_AND_DEFAULTS = frozenset(("__closure__", "__defaults__", "__kwdefaults__"))
SHOWN = frozenset("__name__ __qualname__ __doc__ __module__ __annotations__ __annotate__ __type_params__".split())
"""What may be assigned to a function, and what differs between functions of one code."""


def load_from_function(m: Any, function: FunctionType, name: str) -> Any:
    if name == "__dict__":
        m.heap.members(function)
        return function.__dict__
    if find_on_type(FunctionType, name) is not None:
        if name == "__annotations__" and BEHAVIOR.annotations_are_computed:
            compute_annotations(m, function)
            load_from_function(m, function, "__annotate__")  # what it has returned is guarded next
        value = m.plainly(getattr, function, name)
        if name in NAMESPACES and id(value) not in m.heap.fresh:
            m.heap.namespace(value)
        if id(function) in m.heap.fresh or name not in CELLS_AND_DEFAULTS and is_trusted_function(function):
            return value
        origin = m.heap.origin_of(function)
        source = (m.heap.sources.pin(function) if origin is None else origin.source).attr(name)
        if name == "__code__":
            m.heap.guard("is", source, value)
        elif name in CELLS_AND_DEFAULTS or name in SHOWN:
            return m.heap.admit(value, source)
        return value
    if is_trusted_function(function) and id(function) not in m.heap.fresh:
        return m.heap.adopt(m.plainly(getattr, function, name))
    members = m.heap.members(function)
    if members is None:
        return m.plainly(getattr, function, name)
    value = m.heap.read_key(members, name)
    return m.plainly(getattr, function, name) if value is MISSING else value


def compute_annotations(m: Any, made: Any) -> None:
    """Let Python compute the annotations of a function or class of the program, and store them, if the function that
    does so has no effects. It is interpreted before, which guards what it reads. Once they are computed, it is not
    called again."""
    if not BEHAVIOR.annotations_are_computed or is_trusted(made.__module__) or are_computed(made):
        return
    annotate = made.__annotate__
    if annotate is None:
        return
    answer, why = m.interpret_purely(annotate, (1,)) if type(annotate) is FunctionType else (None, "of no function")
    if why is None and answer is not RAISES:
        m.known_codes.add(annotate.__code__)
        m.plainly(getattr, made, "__annotations__")
    else:
        m.stop(breaks.OPAQUE_CALL, f"the annotations of {made.__qualname__}, which are computed when they are read")


def are_computed(made: Any) -> bool:
    """Whether an object has its annotations already. A function shows it to the garbage collector only."""
    if isinstance(made, type):
        return "__annotations_cache__" in made.__dict__
    others = (
        made.__dict__,
        made.__globals__,
        made.__builtins__,
        made.__kwdefaults__,
        made.__defaults__,
        made.__closure__,
        made.__doc__,
        made.__module__,
    )
    return any(type(part) is dict and all(part is not other for other in others) for part in gc.get_referents(made))
