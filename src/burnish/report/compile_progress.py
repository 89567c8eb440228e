"""Progress on a terminal or in a notebook: after two seconds of one compilation, a line says what is compiled, and how
far it is.

    stop = start(lambda: settings.current().progress)

    ██████████░░░░░░░░░░  compiling 340 operations from model.py:12 in forward: measure library calls 14/40 (3 s)

With rich installed, the bar is rich's. It is erased at the end, and is only drawn while the compiler runs: the program
itself may print meanwhile. Nothing is printed if stderr goes somewhere else, or with `BURNISH_PROGRESS=0`.
"""

from __future__ import annotations

import os.path
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from ..concurrency import thread_locks
from ..events import Event, subscribe
from .rich_output import bar_line, console_on
from .subscribe_while_enabled import is_terminal, redraws_lines
from .text_layout import line_text

CELLS = 20
PATIENCE = 2.0
INTERVAL = 0.2
"""Seconds before a line is drawn, and between two drawings."""

STAGES = {
    "lower": "lower to operators",
    "measure": "measure library calls",
    "schedule": "fuse and plan memory",
    "codegen": "generate code",
}
"""In the order in which a graph goes through them."""


NOTEBOOK_WIDTH = 110


def width(stream: TextIO) -> int:
    return shutil.get_terminal_size().columns - 1 if is_terminal(stream) else NOTEBOOK_WIDTH


def bar(part: float) -> str:
    """A fraction of 1 as a bar."""
    filled = round(CELLS * min(1.0, part))
    return "█" * filled + "░" * (CELLS - filled)


@dataclass(slots=True)
class Compilation:
    """What one thread is compiling."""

    what: str
    started: float
    stage: str = "lower"
    part: float = 0.0
    detail: str = ""

    def enter(self, stage: str) -> None:
        if stage in STAGES:
            self.stage, self.part, self.detail = stage, 0.0, ""

    def done(self) -> float:
        return (list(STAGES).index(self.stage) + self.part) / len(STAGES)

    def text(self) -> str:
        seconds = time.monotonic() - self.started
        return f"compiling {self.what}: {STAGES[self.stage]}{self.detail} ({seconds:.0f} s)"


class Progress:
    def __init__(self, is_wanted: Callable[[], bool], to: TextIO | None):
        self.is_wanted, self.to = is_wanted, to
        self.running: dict[int, Compilation] = {}
        self.ended = threading.Event()
        self.lock = thread_locks.lock()

    def on_event(self, event: Event) -> None:
        thread, data = threading.get_ident(), event.data
        compilation = self.running.get(thread)
        if event.kind == "stage.begin" and data["stage"] == "compile" and compilation is None:
            if self.is_wanted():
                self.begin(thread, Compilation(described(data["graph_module"]), time.monotonic()))
        elif compilation is None:
            return
        elif event.kind == "stage.begin":
            compilation.enter(data["stage"])
        elif event.kind == "kernels.measuring":
            compilation.part = data["done"] / max(data["total"], 1)
            compilation.detail = f" {data['done']}/{data['total']}"
        elif data["stage"] == "compile":
            self.end(thread)

    def begin(self, thread: int, compilation: Compilation) -> None:
        with self.lock:
            self.running[thread] = compilation
            if len(self.running) == 1:
                self.ended = threading.Event()
                threading.Thread(target=self.draw, args=(self.ended,), name="burnish progress", daemon=True).start()

    def end(self, thread: int) -> None:
        with self.lock:
            self.running.pop(thread, None)
            if not self.running:
                self.ended.set()

    def draw(self, ended: threading.Event) -> None:
        """Runs in a thread of its own, because the thread that compiles is busy."""
        wait, has_drawn, console = PATIENCE, False, None
        stream = sys.stderr if self.to is None else self.to
        if not redraws_lines(stream):
            return
        write = write_on_terminal if is_terminal(stream) else write_in_notebook
        try:
            while not ended.wait(wait) and (self.to is not None or sys.stderr is stream):
                wait = INTERVAL
                oldest = next(iter(list(self.running.values())), None)
                if oldest is not None and time.monotonic() - oldest.started >= PATIENCE:
                    columns = width(stream)
                    if not has_drawn:  # only now, as it imports rich
                        has_drawn, console = True, console_on(stream, columns)
                    write(stream, progress_line(console, oldest.done(), oldest.text(), columns))
            if has_drawn:
                write(stream, "")
        except Exception:  # the terminal is gone, or the program has replaced it
            return


def progress_line(console: Any, done: float, text: str, columns: int) -> str:
    """A bar and a text, by a console of rich if there is one. Without colors, the rest of rich's bar cannot be seen."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    if console is None or console.no_color or console.color_system is None:
        return f"{bar(done)}  {text}"[:columns]
    return bar_line(console, done, text, CELLS, columns)


def write_on_terminal(stream: TextIO, line: str) -> None:
    stream.write(f"\r\x1b[K{line}")
    stream.flush()


def write_in_notebook(stream: TextIO, line: str) -> None:
    """A carriage return alone, as notebooks know no other codes: blanks cover what the last line was longer by."""
    stream.write(f"\r{line:<{NOTEBOOK_WIDTH}}" if line else f"\r{'':<{NOTEBOOK_WIDTH}}\r")
    stream.flush()


def described(graph_module: Any) -> str:
    """`340 operations from model.py:12 in forward`."""
    nodes = [node for node in graph_module.graph.nodes if node.op.startswith("call_")]
    line = next((node.meta["stack_trace"] for node in nodes if node.meta.get("stack_trace")), None)
    where = f" from {os.path.basename(line_text(line))}" if line else ""
    return f"{len(nodes)} operation{'s' * (len(nodes) != 1)}{where}"


def start(is_wanted: Callable[[], bool], to: TextIO | None = None) -> Callable[[], None]:
    """`to` is the current stderr by default. The result ends it."""
    if not redraws_lines(sys.stderr if to is None else to):
        return lambda: None
    progress = Progress(is_wanted, to)
    return subscribe(progress.on_event, ["stage.begin", "stage.end", "kernels.measuring"])
