"""``object.__reduce_ex__``: the protocol of `copy.copy` and `copy.deepcopy` for classes without hooks of their own.

It is C code that calls the class's `__getstate__`, so it is written in Python here, and interpreted. A copy of an
object then consists of the same reads and writes as a copy made by hand.

    copy.deepcopy(config)        # config.__reduce_ex__(4): (copyreg.__newobj__, (Config,), config.__dict__, None, None)
"""

from __future__ import annotations

import copyreg
import types
from collections.abc import Callable
from typing import Any

from ..engine.interpreted_or_native import is_trusted_function
from ..interpreter.frames import MISSING
from .attributes.class_lookup import lookup

OWN_ARGUMENTS = ("__getnewargs__", "__getnewargs_ex__")
HEAP_TYPE = 1 << 9
OF_C_CODE = 1 << 8 | 1 << 7  # its attributes are fixed, or only C code makes objects of it


def reduction_of(m: Any, owner: Any, name: str, args: tuple, kwargs: dict) -> Callable | None:
    """The function to call with ``owner`` in place of ``object.<name>``, or None if the C code itself has to run."""
    kind = type(owner)
    if kwargs or not is_of_python_classes(kind):
        return None  # if all classes are Python's, a method in C is object's
    if name == "__getstate__":
        return None if args else state_of
    if len(args) != 1 or type(args[0]) is not int or args[0] < 2:
        return None
    if any(lookup(m, kind, hook)[0] is not MISSING for hook in OWN_ARGUMENTS):
        return None
    return reduced if lookup(m, kind, "__reduce__")[1] is object else reduced_by_the_class


def asks_the_container(m: Any, owner: Any) -> bool:
    """Whether the C code calls the user's methods for what a subclass of a container holds."""
    found = [lookup(m, type(owner), name)[0] for name in ("items", "__iter__", "__getstate__", *OWN_ARGUMENTS)]
    return any(isinstance(method, types.FunctionType) and not is_trusted_function(method) for method in found)


def is_of_python_classes(kind: type) -> bool:
    """Whether all state of an object is in its `__dict__` and its slots."""
    return all(
        base is object
        or base.__flags__ & HEAP_TYPE
        and not base.__flags__ & OF_C_CODE
        and not isinstance(base.__dict__.get("__new__"), types.BuiltinFunctionType)
        for base in kind.__mro__
    )


def reduced(thing):
    return copyreg.__newobj__, (type(thing),), thing.__getstate__(), None, None


def reduced_by_the_class(thing):
    return thing.__reduce__()


def state_of(thing):
    kind = type(thing)
    held = (thing.__dict__ or None) if kind.__dictoffset__ else None
    slots = {}
    for name in slot_names(kind):
        if hasattr(thing, name):
            slots[name] = getattr(thing, name)
    return (held, slots) if slots else held


def slot_names(kind):
    return tuple(copyreg._slotnames(kind))  # type: ignore[attr-defined]


slot_names._burnish_constant = True  # type: ignore[attr-defined]
