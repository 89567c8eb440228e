"""Imports the compiler in a background thread while the first function is traced.

    begin()        the first trace begins: another thread imports
    end()          it is over: modules that are not imported yet wait until they are needed

A trace runs torch's operators, which release the GIL; imports hold it for a quarter of a second. The modules for a
program from disk come first. If there are programs on disk, only those are imported: this one is likely among them.
"""

from __future__ import annotations

import importlib
import os
import threading

from ..concurrency.first_value_cache import once
from ..concurrency.loaded_modules import loaded
from ..runtime.disk.disk_cache import disk_cache

TO_READ = ("llvmlite.binding", "burnish.compiler.program_serialization", "burnish.compiler.graph_cache_key")
TO_COMPILE = (
    "burnish.codegen.llvm",
    "burnish.lower.pipeline",
    "burnish.schedule.pipeline",
    "burnish.compiler.compile_graph",
)
LONGEST_WAIT = 5.0
"""Seconds that a fork waits for the thread: a child cannot import a module that the thread is importing."""


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
        return  # no thread can be started, for example because the interpreter is shutting down
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
            return  # the import that needs it raises the error again


_over = threading.Event()
_begun: dict[str, object] = {}
"""Set by the thread that came first: `setdefault` is atomic."""
