"""Counts traces, compilations and comparisons with eager: a call in which none happened ran at its final speed.

before = compile_activity_counter.steps(); call(); is_settled = compile_activity_counter.steps() == before
"""

from __future__ import annotations

_steps = [0]


def count_step() -> None:
    """Called for each such step."""
    _steps[0] += 1


def steps() -> int:
    return _steps[0]
