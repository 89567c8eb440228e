"""Reads of instance dictionaries that call no method of the user, such as ``__getattribute__``."""

from __future__ import annotations

import collections
import threading
import types
from typing import Any

PLAIN_TABLES = (dict, collections.OrderedDict, types.MappingProxyType)


OF_C = (types.GetSetDescriptorType, types.MemberDescriptorType)
NOT_BY_OBJECT = (type, threading.local)  # a thread's own values are behind the attribute, not in the object


def dict_of(obj: Any) -> Any:
    """The instance dictionary, past any ``__getattribute__`` of the user's; None where there is none, or where the
    class hides it."""
    kind = type(obj)
    if issubclass(kind, NOT_BY_OBJECT):
        return obj.__dict__ if issubclass(kind, type) else threading.local.__getattribute__(obj, "__dict__")
    for base in kind.__mro__:
        getter = base.__dict__.get("__dict__")
        if type(getter) in OF_C:
            return getter.__get__(obj)
    return None


def hides_dict(kind: type) -> bool:
    """Whether ``obj.__dict__`` is no instance dictionary, but what the user's class has under this name."""
    found = next((base.__dict__["__dict__"] for base in kind.__mro__ if "__dict__" in base.__dict__), None)
    return found is not None and type(found) not in OF_C and not issubclass(kind, NOT_BY_OBJECT)


def may_have_keys(obj: Any) -> bool:
    """Whether ``**`` may take the object for a mapping, as far as can be seen without the user's code."""
    kind = type(obj)
    return hasattr(kind, "keys") or hasattr(kind, "__getattr__") or "keys" in (dict_of(obj) or ())
