"""Collect fallbacks: code that runs slower than intended, for example eagerly.

    with collect_fallbacks() as found:
        model(x)
    for fallback in found:
        print(fallback)                  refused (lower.refused): runs eagerly: a lazily conjugated tensor

A fallback gives the right result, so a comparison with eager does not detect it. The part that falls back marks its
event with the datum `fallback`, which is one of CAUSES. Tests and benchmarks fail on every fallback that they do not
name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..events import Event, subscribe

CAUSES = {
    "internal": "a part of Burnish raised an error: a defect",
    "refused": "the compiler does not support something in a graph, which runs eagerly",
    "sizes": "a graph is compiled for each size by itself, instead of once for all sizes",
    "numbers": "a graph is compiled for each Python number among its inputs by itself",
    "raced": "another thread changed what a trace has read, or the stack was full: a later call traces again",
    "left": "a program has many breaks and few torch calls, and runs as plain Python",
    "limit": "a place has more variants than the setting segment_limit, and runs eagerly",
}

KINDS = (
    "lower.refused",
    "lower.numbers",
    "guards.sizes",
    "guards.given_up",
    "guards.raced",
    "guards.unwatched",
    "cache.unreadable",
)
"""The kinds of events that may be fallbacks."""


@dataclass(frozen=True, slots=True)
class Fallback:
    cause: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.cause} ({self.kind}): {self.text}"


@contextlib.contextmanager
def collect_fallbacks() -> Iterator[list[Fallback]]:
    """The fallbacks of all threads inside the block, in order."""
    found: list[Fallback] = []

    def note(event: Event) -> None:
        cause = event.data.get("fallback")
        if cause is not None:
            found.append(Fallback(cause, event.kind, str(event.data["text"])))

    stop = subscribe(note, KINDS)
    try:
        yield found
    finally:
        stop()
