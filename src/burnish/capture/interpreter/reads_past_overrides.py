"""Reads of instance dictionaries that call no method of the user, such as ``__getattribute__``."""

from __future__ import annotations

import collections
import threading
import types
from typing import Any

PLAIN_TABLES = (dict, collections.OrderedDict, types.MappingProxyType)


NOT_BY_OBJECT = (type, threading.local)  # a thread's own values are behind the attribute, not in the object


def dict_of(obj: Any) -> Any:
    """The instance dictionary, past any ``__getattribute__`` of the user's; None where there is none."""
    kind = type(obj)
    if issubclass(kind, NOT_BY_OBJECT):
        return obj.__dict__ if issubclass(kind, type) else threading.local.__getattribute__(obj, "__dict__")
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None


def may_have_keys(obj: Any) -> bool:
    """Whether ``**`` may take the object for a mapping, as far as can be seen without the user's code."""
    kind = type(obj)
    return hasattr(kind, "keys") or hasattr(kind, "__getattr__") or "keys" in (dict_of(obj) or ())
