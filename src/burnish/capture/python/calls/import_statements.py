"""Imports inside functions: importing a module again has no effect once it is in ``sys.modules``."""

from __future__ import annotations

import sys
from typing import Any

from ... import breaks
from ...interpreter.frames import Frame


def import_module(m: Any, frame: Frame, name: str, level: int, names: Any) -> Any:
    full = name
    if level:
        package = frame.globals.get("__package__") or frame.globals["__name__"].rpartition(".")[0]
        for _ in range(level - 1):
            package = package.rpartition(".")[0]
        full = f"{package}.{name}" if name else package
    if full not in sys.modules:
        m.stop(breaks.OPAQUE_CALL, f"first import of {full}")
    return m.plainly(fr_import, frame, name, level, names)


def fr_import(frame: Frame, name: str, level: int, names: Any) -> Any:
    return frame.builtins["__import__"](name, frame.globals, None, names, level)
