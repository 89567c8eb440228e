"""`BURNISH_CHECK=bisect`: the first graph of a process that differs from eager becomes a script of about ten lines.

    BURNISH_CHECK=bisect torchrun train.py        writes burnish-repro.py, and then raises as BURNISH_CHECK=1 does

`burnish bisect script.py` does more: it also finds crashes, and the rewrite that is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from ...errors import UserError
from ...events import Event, subscribe
from .minimize_script import minimize_graphs, refuse_files_of_others
from .record_graphs import NotPrintable, recorded
from .straight_line import straight_line


def start(is_wanted: Callable[[], bool], output: Path = Path("burnish-repro.py")) -> Callable[[], None]:
    """The result ends it."""
    found: list[str] = []

    def on_event(event: Event) -> None:
        if found or not is_wanted():
            return
        found.append(event.data["text"])
        try:
            refuse_files_of_others(output)
            parts = recorded(event.data["graph_module"], event.data["inputs"]) | {"grad": event.data["grad"]}
            graph = straight_line(**parts).with_written_inputs()
        except (NotPrintable, UserError) as why:
            say(f"burnish: the graph that differs from eager is not written: {why}")
            return
        if not minimize_graphs([graph], output, say):
            say("burnish: the graph that differs from eager does not differ by itself. Try burnish bisect script.py")

    return subscribe(on_event, ["check.differs"])


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
