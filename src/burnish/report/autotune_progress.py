"""Progress bar of max-autotune on a terminal: one line, removed at the end.

    stop = start(lambda: settings.current().max_autotune)

    ███████░░░░░░░░░░░░░  14/40 linear f32[128, 768] f32[3072, 768] bias f32[3072] frozen

Prints nothing if stderr is not a terminal.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import TextIO

from ..events import Event, subscribe

CELLS = 20


def bar(part: float) -> str:
    """A fraction of 1 as a bar."""
    filled = round(CELLS * min(1.0, part))
    return "█" * filled + "░" * (CELLS - filled)


def start(is_wanted: Callable[[], bool], to: TextIO | None = None) -> Callable[[], None]:
    """`to` is the current stderr by default. The result ends it."""

    def show(event: Event) -> None:
        stream = to or sys.stderr
        if not is_wanted() or not stream.isatty():
            return
        stream.write("\r\x1b[K" + line(**event.data)[: shutil.get_terminal_size().columns - 1])
        stream.flush()

    return subscribe(show, kinds=["kernels.measuring"])


def line(done: int, total: int, what: str) -> str:
    return "" if done >= total else f"{bar(done / total)}  {done + 1}/{total} {what}"
