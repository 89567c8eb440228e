"""How long this process's threads waited for a core: on busy cores a measured time says little."""

from __future__ import annotations

import contextlib
import os

DISTURBED = 0.05
"""The fraction of the time that our threads may wait for a core before times are not trusted."""


def seconds_waited() -> float | None:
    """For how long this process's threads were ready to run but had no core. Linux counts it."""
    total = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            # A thread may end in between.
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/self/task/{thread}/schedstat", "rb") as file,
            ):
                total += int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return total / 1e9


def is_undisturbed(before: float | None, spent: float) -> bool:
    """Whether our threads got a core whenever they wanted one in the last `spent` seconds, before which
    `seconds_waited` returned `before`. True if the system does not say."""
    after = None if before is None else seconds_waited()
    return after is None or after - before <= DISTURBED * spent  # type: ignore[operator]
