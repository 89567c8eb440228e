"""Count warm-up steps: a function was traced, a graph was compiled or compared with eager.

before = warmup_status.so_far(); call(); is_settled = warmup_status.so_far() == before
"""

from __future__ import annotations

_steps = [0]


def goes_on() -> None:
    """Called for each such step."""
    _steps[0] += 1


def so_far() -> int:
    return _steps[0]
