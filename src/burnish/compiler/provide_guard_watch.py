"""Provides native guard checks to capture, if possible without loading the compiler.

    new_watch()          see ``runtime.state_watch.native_watch``; None if the machine or the Python is not supported

It is compiled once, and read from disk in later processes, which may not need the compiler for anything else.
"""

from __future__ import annotations

import sys

from .. import events
from ..concurrency.first_value_cache import once
from ..concurrency.loaded_modules import loaded
from ..concurrency.outside_errors import Suppressing, reraise_from_outside
from ..runtime.disk.disk_cache import DiskCache, disk_cache
from ..runtime.program.native_kernels import NativeFunction
from ..runtime.state_watch.native_watch import Watch, is_supported, load_watchers
from ..settings import current

KIND = "watcher"
MAKES_MACHINE_CODE = "burnish.codegen.llvm.compile_to_machine_code"
MAKES_KEYS = "burnish.compiler.graph_cache_key"


def is_at_hand() -> bool:
    """Whether it is available without loading a part of the compiler. Other backends do not need the compiler for
    anything else, and neither may programs from disk."""
    return (
        watchers.cache_info().currsize > 0 or loaded(MAKES_MACHINE_CODE) is not None or watchers_on_disk() is not None
    )


def new_watch() -> Watch | None:
    found = watchers()
    return None if found is None else Watch(found)


def watch_at_hand() -> Watch | None:
    """A watch, if it is switched on and available without loading the compiler."""
    return new_watch() if current().native_guards and is_at_hand() else None


@once
def watchers() -> tuple[int, int] | None:
    if not is_supported:
        return None
    try:
        one, of_tuple = watchers_on_disk() or compiled()
        return one.address, of_tuple.address
    except Exception as error:  # guards are then checked in Python, as they are where this is switched off
        reraise_from_outside(error)
        if current().on_error == "raise":
            raise
        events.emit(
            "guards.unwatched", text=f"no native code for guards: {type(error).__name__}: {error}", fallback="internal"
        )
        return None


def compiled() -> tuple[NativeFunction, NativeFunction]:
    from ..codegen.llvm.functions.native_guard_check import compile_watchers

    made = compile_watchers()
    where = place()
    if where is not None:
        where[0].put(KIND, where[1], made[0].object_code)
    return made


def watchers_on_disk() -> tuple[NativeFunction, NativeFunction] | None:
    """The functions on disk, or None."""
    where = place()
    return None if where is None or not is_supported else read(*where)


@once
def read(shelf: DiskCache, key: str) -> tuple[NativeFunction, NativeFunction] | None:
    """They stay in memory forever: checks refer to them."""
    code = shelf.get(KIND, key)
    with Suppressing(Exception):  # it is then compiled again
        return None if code is None else load_watchers(code)
    return None


def place() -> tuple[DiskCache, str] | None:
    """The disk cache and the key, or None if the module that makes keys is not loaded: loading it alone takes longer
    than a watch saves."""
    asked = loaded(MAKES_KEYS)
    shelf = None if asked is None else disk_cache()
    return None if asked is None or shelf is None else (shelf, f"{asked.compiler_identity()}\n{sys.version}")
