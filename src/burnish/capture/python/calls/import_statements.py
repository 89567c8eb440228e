"""Imports inside functions: importing a module again has no effect once it is in ``sys.modules``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from ... import breaks
from ...engine.interpreted_or_native import is_trusted
from ...interpreter.frames import Frame
from ...numbers.live_scalars import Expression


def import_module(m: Any, frame: Frame, name: str, level: int, names: Any) -> Any:
    if m.load_builtin_unasked(frame, "__import__", ImportError) is not __import__:
        m.stop(breaks.OPAQUE_CALL, "an import by a replaced __import__")
    full = name
    if level:
        package = frame.globals.get("__package__") or frame.globals["__name__"].rpartition(".")[0]
        for _ in range(level - 1):
            package = package.rpartition(".")[0]
        full = f"{package}.{name}" if name else package
    if full not in sys.modules:
        m.stop(breaks.OPAQUE_CALL, f"first import of {full}")
    guard_imported(m, full)
    return m.plainly(fr_import, frame, name, level, names)


def fr_import(frame: Frame, name: str, level: int, names: Any) -> Any:
    return frame.builtins["__import__"](name, frame.globals, None, names, level)


def guard_imported(m: Any, name: str) -> None:
    """``sys.modules`` may hold another module under the name later, or under that of a package around it."""
    if not is_trusted(name):
        for end in [*(k for k, letter in enumerate(name) if letter == "."), len(name)]:
            m.heap.guard("is", m.heap.sources.pin(sys.modules).item(name[:end]), sys.modules[name[:end]])


def find_spec(m: Any, args: tuple, kwargs: dict) -> Any:
    """``importlib.util.find_spec``: a program asks whether a package is installed. Files decide that."""
    by_user = any(not is_harmless(getattr(finder, "__module__", None) or "") for finder in sys.meta_path)
    if len(args) != 1 or kwargs or type(args[0]) is not str or by_user:
        return m.stop(breaks.OPAQUE_CALL, "importlib.util.find_spec()")
    m.known_codes.add(importlib.util.find_spec.__code__)  # and the finders that it calls
    found = m.plainly(importlib.util.find_spec, args[0])
    if args[0] in sys.modules:
        guard_imported(m, args[0])
    else:
        m.guard_outcome(Expression(is_found, (args[0],)), found is not None)
    return found


def is_harmless(module: str) -> bool:
    """Whether a finder of this module only looks for files: Python's own, and those of installed packages.

    Installers, test runners and libraries with renamed modules (Transformers) add such finders.
    """
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return is_trusted(module) or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def is_found(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
