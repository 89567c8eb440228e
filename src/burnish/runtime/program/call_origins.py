"""Where the calls of a driver come from, for profilers: the plan's step, its name, and the line of the user's program.

    origins.steps["launch_0"]       [0, 1, 1]: its three native functions are of step 0 and of step 1
    origins.names[1]                "own packed"
    origins.lines[1]                '  File "model.py", line 12, in forward'

Nothing reads it while a program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .native_kernels import separate_launches


@dataclass(frozen=True, slots=True, eq=False)
class CallOrigins:
    steps: dict[str, list[int]]
    """By the name of a function in the driver, the step of each native function that it runs, or its own step."""
    names: list[str]
    lines: list[Any]
    """For each step a `captured_graph.call_site.CallSite`, other text, or None. Not serialized: the same graph may be
    captured from a file whose lines have moved, so its number among the nodes is."""

    def separate(self, launch: Callable[[Any], None]) -> list[Callable[[Any], None]]:
        """The native functions that a function of the driver runs, as functions of the same table."""
        return separate_launches(launch)
