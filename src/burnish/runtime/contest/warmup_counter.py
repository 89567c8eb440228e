"""Count warm-up steps: a function was traced, a graph was compiled or compared with eager.

before = warmup_status.steps(); call(); is_settled = warmup_status.steps() == before
"""

from __future__ import annotations

_steps = [0]


def count_step() -> None:
    """Called for each such step."""
    _steps[0] += 1


def steps() -> int:
    return _steps[0]
