"""The job of one process of the benchmark, and the messages that it sends.

{"kind": "cold", "model": "bert", "contestants": ["burnish"], …}     in, as the one argument
{"stage": "compiles", "contestant": "burnish"}                       out, a line for each stage that begins
{"result": {…}}                                                      out, last: or {"failed": "…"}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TURNS = "takes turns"
"""The stage that other load must not disturb."""

Message = dict[str, Any]
Tell = Callable[[Message], Any]


@dataclass
class Job:
    kind: str
    """`cold`: one contestant from the start of its process; `steady`: all contestants in turns; `overhead`: the small
    programs."""
    contestants: list[str]
    caches: str
    """The folder that contains a cache folder for each contestant."""
    spawned: float = 0.0
    """`time.monotonic` of the parent: this clock is the same in every process of the machine."""
    messages: int = -1
    """The file descriptor for messages. Libraries write to standard output and error."""
    model: str = ""
    mode: str = "inference"
    times: int | None = None
    dropout: bool = True
    device: str = "cpu"
    dtype: str | None = None
    threads: int | None = None
    rounds: int = 12
    seconds: float = 0.25


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]
