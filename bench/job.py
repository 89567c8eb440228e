"""What one process of the benchmark is asked to do, and how it answers.

{"kind": "cold", "model": "bert", "contestants": ["burnish"], …}     in, as the one argument
{"stage": "compiles", "contestant": "burnish"}                       out, a line for each thing it begins
{"result": {…}}                                                      out, last: or {"failed": "…"}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TURNS = "takes turns"
"""The stage in which everything has to be undisturbed."""

Message = dict[str, Any]
Tell = Callable[[Message], Any]


@dataclass
class Job:
    kind: str
    """`cold` is one contestant from the start of its process, `steady` all of them in turns, `overhead` the small
    programs."""
    contestants: list[str]
    caches: str
    """The folder in which each contestant has one for its caches."""
    spawned: float = 0.0
    """`time.monotonic` of the parent: the machine's clock, the same in every process."""
    messages: int = -1
    """The file descriptor that messages go to. Standard output and error belong to the libraries."""
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
