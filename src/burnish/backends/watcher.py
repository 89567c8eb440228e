"""The native code that watches state for guards, for capture, which does not know the compiler.

    new_watch()          see ``runtime.watch``; None on a machine or a Python it cannot be had on
"""

from __future__ import annotations

import functools
import sys

from .. import events
from ..runtime.watch import Watch, is_supported
from ..settings import current

CODEGEN = f"{__package__.rpartition('.')[0]}.codegen"


def is_at_hand() -> bool:
    """Whether no part of the compiler has to be loaded first. Under other backends than ours nobody needs it else."""
    return watcher.cache_info().currsize > 0 or f"{CODEGEN}.llvm.compile" in sys.modules


def new_watch() -> Watch | None:
    found = watcher()
    return None if found is None else Watch(found)


def watch_at_hand() -> Watch | None:
    """Where it costs nothing but itself."""
    return new_watch() if current().native_guards and is_at_hand() else None


@functools.cache
def watcher() -> int | None:
    if not is_supported:
        return None
    from ..codegen.llvm.watcher import compile_watcher

    try:
        return compile_watcher().address
    except Exception as error:  # without it guards are checked in Python, as they are where this is switched off
        events.emit("guards.unwatched", text=f"no native code for guards: {type(error).__name__}: {error}")
        return None
