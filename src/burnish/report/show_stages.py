"""BURNISH_SHOW: print the events of the requested stages to stderr, as they happen.

    stop = start(lambda: settings.current().show)

    [breaks] model.py:12  if y.sum() > 0:  needs the value of a tensor
    [guards.missed] self.scale: expected 2.0, found 3.0

The first part of an event's kind is its stage. Its datum `text` is printed; without one, all its data.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from typing import Any, TextIO

from ..events import Event, subscribe
from .guard_misses import GuardMiss, render_miss
from .text_layout import cut, shown

_lock = threading.Lock()


def start(wanted: Callable[[], Collection[str]], to: TextIO | None = None) -> Callable[[], None]:
    """Print events of the stages that `wanted` returns at the time of each event. The result ends it.

    `to` is the current stderr by default, so that redirecting it works.
    """

    def show(event: Event) -> None:
        if stage_of(event.kind) in wanted():
            # One write at a time: threads compile concurrently.
            with _lock:
                print(render(event), file=to or sys.stderr, flush=True)

    return subscribe(show)


def stage_of(kind: str) -> str:
    """The stage of an event: "guards" for "guards.missed"."""
    return kind.partition(".")[0]


def render(event: Event) -> str:
    """An event as text, with the lines after the first indented."""
    text = event.data.get("text")
    if text is None and "failures" in event.data:
        failures = [GuardMiss(*failure) for failure in event.data["failures"]]
        text = render_miss(event.data["function"], event.data["location"], failures)
    if text is None:
        text = "  ".join(f"{name}={_short(value)}" for name, value in event.data.items())
    return f"[{event.kind}] " + str(text).rstrip("\n").replace("\n", "\n    ")


def _short(value: Any) -> str:
    # A tensor's repr would read its data, which on a GPU waits for all preceding kernels.
    return f"{type(value).__name__}{list(value.shape)}" if hasattr(value, "shape") else cut(shown(value), 80)
