"""Locks that survive a fork (in the child they are free, whichever thread held them), and whether Python has its own.

    lock = thread_locks.lock()         a threading.Lock

`os.fork` copies the memory and one thread. A lock that another thread held at that moment would be held for ever in
the child. The data behind our locks is replaced as a whole, so the child may simply reset them. (`logging` does
the same with its locks.)
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any

has_global_lock = "t" not in getattr(sys, "abiflags", "") and "free-threading" not in sys.version
"""Whether this Python has the global interpreter lock. Before 3.14, ``sys.abiflags`` is missing on Windows."""

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> threading.Lock:
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> Any:
    made = threading.RLock()
    _locks.add(made)
    return made


def _free_all() -> None:
    for each in list(_locks):
        each._at_fork_reinit()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_free_all)
