"""Counts traces, compilations and comparisons with eager: a call in which none happened ran at its final speed.

before = compile_activity_counter.steps(); call(); is_settled = compile_activity_counter.steps() == before

It also hands on what the contest of a graph has found, to the contest of the whole calls that run the graph.
"""

from __future__ import annotations

import threading

_steps = [0]


def count_step() -> None:
    """Called for each such step."""
    _steps[0] += 1


def steps() -> int:
    return _steps[0]


class Here(threading.local):
    bound: float | None = None


_here = Here()


def note_bound(seconds: float | None) -> None:
    """Called when the contest of a graph is decided: whole calls that take no longer, backward aside, are no slower
    than eager. None: it is not known."""
    _here.bound = seconds


def take_bound() -> float | None:
    """What this thread has noted since the last time."""
    found, _here.bound = _here.bound, None
    return found
