"""One line on the terminal with the progress of a benchmark; nothing if the output is not a terminal.

███████░░░░░░░░░░░░░  8/22 resnet50 · torch.compile compiles · 1:42
"""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from burnish.report.compile_progress import progress_line, width, write_on_terminal
from burnish.report.rich_output import console_on

from .job import Message


class Progress:
    def __init__(self, total: int, stream: TextIO | None = None):
        self.total, self.done, self.title = total, 0, ""
        self.stream = sys.stderr if stream is None else stream
        self.console = console_on(self.stream, width(self.stream))
        self.begun = time.monotonic()
        self.stage = ""
        self.part = 0.0
        """The completed share of the current piece, as far as it is known."""

    def begin(self, title: str) -> None:
        self.title, self.stage, self.part = title, "", 0.0
        self.show()

    def finish(self) -> None:
        self.done += 1
        self.part = 0.0
        self.show()

    def __call__(self, message: Message) -> None:
        """Show a message of a process; an empty one only advances the clock."""
        if message:
            contestant = message.get("contestant")
            self.stage = f"{contestant} {message['stage']}" if contestant else str(message["stage"])
            if "rounds" in message:
                self.stage += f" {message['round']}/{message['rounds']}"
                self.part = 0.5 + 0.5 * message["round"] / message["rounds"]
        self.show()

    def line(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        parts = [f"{min(self.done + 1, self.total)}/{self.total} {self.title}", self.stage, f"{minutes}:{seconds:02}"]
        done = (self.done + self.part) / max(1, self.total)
        return progress_line(self.console, done, " · ".join(filter(None, parts)), width(self.stream))

    def show(self) -> None:
        if self.stream.isatty():
            write_on_terminal(self.stream, self.line())

    def clear(self) -> None:
        if self.stream.isatty():
            write_on_terminal(self.stream, "")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        self.clear()
