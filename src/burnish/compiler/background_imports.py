"""What compiling needs is imported while the first function is traced.

    begin()        the first trace begins: another thread imports
    end()          it is over: what has not been imported yet waits until somebody needs it

A trace runs torch's operators, which leave the interpreter free; imports take it for a quarter of a second. What a
program from disk needs comes first, and where there are programs on disk, nothing else: this one is likely among them.
"""

from __future__ import annotations

import importlib
import os
import threading

from ..concurrency.compute_once import once
from ..concurrency.loaded_modules import loaded
from ..runtime.disk.disk_cache import disk_cache

TO_READ = ("llvmlite.binding", "burnish.compiler.program_cache", "burnish.compiler.graph_cache_key")
TO_COMPILE = (
    "burnish.codegen.llvm",
    "burnish.lower.pipeline",
    "burnish.schedule.pipeline",
    "burnish.compiler.compile_graph",
)
LONGEST_WAIT = 5.0
"""Seconds that a fork waits for the thread: what it is in the middle of importing, the child could not import."""


@once
def begin() -> None:
    if loaded(TO_COMPILE[-1]) is not None or _begun.setdefault("by", me := object()) is not me:
        return
    shelf = disk_cache()
    is_kept = shelf is not None and shelf.why_not is None and any(shelf.entries())
    names = TO_READ if is_kept else (*TO_READ, *TO_COMPILE)
    thread = threading.Thread(target=_import, args=(names,), name="burnish-imports", daemon=False)
    try:
        thread.start()
    except RuntimeError:
        return  # no thread can be started: the interpreter ends, say
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lambda: None if thread is threading.current_thread() else thread.join(LONGEST_WAIT))


def end() -> None:
    _over.set()


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        if _over.is_set():
            return
        try:
            module = importlib.import_module(name)
            if name == "burnish.compiler.graph_cache_key":
                module.warm_up()
        except Exception:
            return  # whoever needs it will be told


_over = threading.Event()
_begun: dict[str, object] = {}
"""By the one thread that came first: `setdefault` is one step."""
