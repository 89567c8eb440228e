"""Values of objects whose classes derive from immutable builtin ones: a program's own ``int``, ``str`` or ``bytes``.

    class Metres(int): ...

    value_of(Metres(3))        3, past all methods of the class

C code reads such a value past the methods of the class. It never changes, so it is guarded when the object is met.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from ..numbers import numpy_tables

READERS: dict[type, Callable[[Any], Any]] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
BASES = tuple(READERS)


def base_of_value(kind: type) -> type | None:
    """The builtin class that holds the value of objects of this class, which is not that class itself."""
    if kind in READERS or issubclass(kind, enum.Enum) or kind in numpy_tables.NUMBERS:
        return None
    return next((base for base in kind.__mro__ if base in READERS), None)


def value_of(value: Any) -> Any:
    base = base_of_value(type(value))
    return value if base is None else READERS[base](value)


def has_value(value: Any, expected: Any) -> bool:
    found = value_of(value)
    if issubclass(type(found), (float, complex)):
        return repr(found) == repr(expected)  # zeros have a sign, and a NaN is none of its equals
    return found == expected
