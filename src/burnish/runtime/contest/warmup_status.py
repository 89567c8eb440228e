"""Whether what runs is still becoming what it will be: functions are traced, graphs compiled, or compared with eager.

before = settling.so_far(); call(); is_settled = settling.so_far() == before
"""

from __future__ import annotations

_steps = [0]


def goes_on() -> None:
    """Told by whatever takes part of a call for such a thing."""
    _steps[0] += 1


def so_far() -> int:
    return _steps[0]
