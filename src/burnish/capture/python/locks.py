"""Locks that the program makes: only it holds them, so no other code sees them taken or released.

    lock = threading.Lock()
    with lock:
        total += x

A lock that leaves the graph is rebuilt, and acquired again if it was held. Locks from outside are a graph break, and so
is waiting for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .. import breaks
from .operators import guard_before_native_read

KINDS = (type(threading.Lock()), type(threading.RLock()))
TAKE = frozenset(("acquire", "acquire_lock", "__enter__"))


def call_method(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if id(owner) not in m.heap.fresh or m.region is not None:
        return m.stop(breaks.OPAQUE_CALL, f"call of _thread.{type(owner).__name__}.{name}")
    given = [guard_before_native_read.settled(value) for value in args]
    named = {key: guard_before_native_read.settled(value) for key, value in kwargs.items()}
    if name in TAKE and type(owner) is KINDS[0] and owner.locked():
        may_wait = given[0] if given else named.get("blocking", True)
        if type(may_wait) is not bool or may_wait:
            return m.stop(breaks.OPAQUE_CALL, "waiting for a lock")
    return m.plainly(method, *given, **named)


def build(to: Any, value: Any) -> str:
    """In a template: a new lock, in the same state."""
    is_plain = type(value) is KINDS[0]
    name = to.name(value, f"{to.constant(threading._allocate_lock if is_plain else type(value))}()")  # type: ignore[attr-defined]
    held = value.locked() if is_plain else value._recursion_count() if value._is_owned() else 0
    to.lines.extend([f"{name}.acquire()"] * held)
    return name


BUILTINS = {
    factory: lambda m, args, kwargs, factory=factory: m.made(m.plainly(factory, *args, **kwargs))
    for factory in (threading._allocate_lock, threading._CRLock)  # type: ignore[attr-defined]
    if not isinstance(factory, type)
}
"""Before Python 3.13, locks are made by functions."""
