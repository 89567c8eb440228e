"""Kinds of values: what operators and calls ask about a value before they choose a rule.

    type(value) in SIMPLE                    # numbers, strings, dtypes: immutable, computed at once
    is_known(value)                          # operators of C code see no more of it than its type
    python_method(m, value, "__eq__")        # its class defines the method in Python

Nothing is guarded here but the lookup in classes.
"""

from __future__ import annotations

import array
import collections
import enum
import itertools
import types
from collections.abc import ItemsView, KeysView, ValuesView
from types import FunctionType
from typing import Any

import torch

from ...engine.interpreted_or_native import is_trusted_type, is_user_type
from ...guards.container_reads_past_overrides import elements_of, items_of
from ...guards.immutable_builtin_subclasses import base_of_value
from ...guards.tensor_metadata import is_tensor
from ...guards.value_or_identity import PLAIN_VALUES
from ...interpreter.frames import MISSING, Generator
from ...numbers import numpy_tables
from ...numbers.live_scalars import Live, LiveFloat, LiveInt
from ..attributes.class_lookup import lookup

SIMPLE = PLAIN_VALUES | {torch.Size, range, slice}
NUMPY = numpy_tables.VALUES | {numpy_tables.ARRAY}
NUMBERS_OF_PYTHON = frozenset((int, float, bool))
NUMBERS = NUMBERS_OF_PYTHON | {LiveInt, LiveFloat}
BUILTIN_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
CHANGEABLE = (list, dict, set, collections.deque)
BUFFERS = (bytearray, memoryview, array.array, *filter(None, [numpy_tables.ARRAY]))


def has_own_rules(m: Any, kind: type) -> bool:
    """Whether methods of C code call the user's methods for single items: those of an ordered dictionary do."""
    return issubclass(kind, collections.OrderedDict) and any(
        isinstance(lookup(m, kind, name)[0], FunctionType)
        for name in ("__setitem__", "__getitem__", "__delitem__", "__contains__")
    )


NATIVE_PARTS = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type, property, Generator),
    *map(type, ({}.keys(), {}.values(), {}.items())),
    *(types.MappingProxyType, types.GenericAlias, types.UnionType),
)


ENUM_VALUES = (int, float, complex, str, bytes, tuple)


def is_known_native(kind: type) -> bool:
    return kind in SIMPLE or issubclass(kind, NATIVE_PARTS) or is_trusted_type(kind)


def is_known(value: Any) -> bool:
    """Whether operators of C code see only the fixed parts of a value: its type, its immutable value, or that it
    is this member."""
    kind = type(value)
    if is_known_native(kind) or base_of_value(kind) is not None:
        return True
    return issubclass(type(value), enum.Enum) and issubclass(type(value), ENUM_VALUES)


def python_method(m: Any, obj: Any, name: str) -> bool:
    kind = type(obj)
    if kind in SIMPLE or issubclass(kind, Live) or is_tensor(obj):
        return False
    value, owner = lookup(m, kind, name)
    return isinstance(value, FunctionType) and owner is not None


def finds_items_by_methods(m: Any, value: Any) -> bool:
    """Whether C code that looks a key up may call the user's method, or store an entry that was missing."""
    return python_method(m, value, "__getitem__") or lookup(m, type(value), "__missing__")[0] is not MISSING


OF_VALUES = """
    abs round trunc floor ceil float int index complex bool pow rpow divmod rdivmod lt le eq ne gt ge hash len iter
    getitem contains repr bytes
""".split()


def computes_by_value(m: Any, value: Any) -> bool:
    """Whether C code sees no more of an object of a class than its immutable builtin value."""
    return base_of_value(type(value)) is not None and not any(python_method(m, value, f"__{n}__") for n in OF_VALUES)


VIEWS = (KeysView, ValuesView, ItemsView)


def is_read_by_steps(m: Any, value: Any) -> bool:
    """Whether the elements of an iterable are unknown until they are read, one by one: live numbers may be among
    them, and the user's code may make them."""
    kind = type(value)
    if kind is Generator or issubclass(type(value), VIEWS):
        return True
    if kind in SIMPLE or issubclass(kind, (enum.Enum, type)):
        return False
    return hasattr(kind, "__next__") or is_user_type(kind) and python_method(m, value, "__iter__")


def makes_by_python(m: Any, cls: type) -> bool:
    """Whether making an object of a class runs the user's code."""
    return any(
        isinstance(getattr(lookup(m, cls, n)[0], "__func__", lookup(m, cls, n)[0]), FunctionType)
        for n in ("__new__", "__init__")
    )


def holds_user_equality(m: Any, value: Any, depth: int = 0) -> bool:
    if issubclass(type(value), BUILTIN_CONTAINERS) and depth < 10:
        parts = itertools.chain.from_iterable(items_of(value)) if issubclass(type(value), dict) else elements_of(value)
        return any(holds_user_equality(m, p, depth + 1) for p in parts)
    return python_method(m, value, "__eq__")


def mentions_tensor(args: Any, kwargs: Any) -> bool:
    return any(issubclass(type(a), torch.Tensor) for a in (*args, *kwargs.values()))


def holds_buffer(value: Any, depth: int = 0) -> bool:
    """Whether a value is a buffer, of whose content nothing is guarded, or has one in it."""
    if issubclass(type(value), BUILTIN_CONTAINERS) and depth < 10:
        parts = itertools.chain.from_iterable(items_of(value)) if issubclass(type(value), dict) else elements_of(value)
        return any(holds_buffer(part, depth + 1) for part in parts)
    return issubclass(type(value), BUFFERS)
