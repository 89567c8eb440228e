"""Reads of the dictionaries of objects and classes that call nothing of the user's: no ``__getattribute__``, and no
property that is called ``__dict__``."""

from __future__ import annotations

import collections
import ctypes
import threading
import types
from collections.abc import Callable
from typing import Any

PLAIN_TABLES = (dict, collections.OrderedDict, types.MappingProxyType)

NOT_BY_OBJECT = (type, threading.local)  # a thread's own values are behind the attribute, not in the object

table_of_class: Callable[[type], types.MappingProxyType] = type.__dict__["__dict__"].__get__
_order_of: Callable[[type], tuple] = type.__dict__["__mro__"].__get__
_name_of: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_shows_others: dict[type, bool] = {}


def store_class_fact(table: dict[type, Any], kind: type, fact: Any) -> Any:
    """Store a fact about a class and return it. Classes made on the fly must not be kept forever, because the methods
    of a class inside a function may close over large objects, such as a model."""
    if "<locals>" not in _name_of(kind):
        if len(table) > 4096:
            table.clear()
        table[kind] = fact
    return fact


def dict_of(obj: Any) -> Any:
    """The instance dictionary; None where there is none."""
    kind = type(obj)
    if issubclass(kind, NOT_BY_OBJECT):
        return table_of_class(obj) if issubclass(kind, type) else threading.local.__getattribute__(obj, "__dict__")
    try:
        return generic_dict(obj) if shows_other_dict(kind) else object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None


def shows_other_dict(kind: type) -> bool:
    """Whether a class of the user's defines ``__dict__``, which it can only when it is made."""
    found = _shows_others.get(kind)
    if found is None:
        named = [table["__dict__"] for table in map(table_of_class, _order_of(kind)) if "__dict__" in table]
        found = bool(named) and type(named[0]) not in (types.GetSetDescriptorType, types.MemberDescriptorType)
        store_class_fact(_shows_others, kind, found)
    return found


def generic_dict(obj: Any) -> dict:
    return _prototype(("PyObject_GenericGetDict", ctypes.pythonapi))(ctypes.py_object(obj), None)


_prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)


def may_have_keys(obj: Any) -> bool:
    """Whether ``**`` may take the object for a mapping, as far as can be seen without the user's code."""
    kind = type(obj)
    return hasattr(kind, "keys") or hasattr(kind, "__getattr__") or "keys" in (dict_of(obj) or ())
