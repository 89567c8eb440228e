"""Starts a contest of whole calls for programs with breaks, which graphs alone cannot time fully.

whole_call_contest.begin(program, segment)     calls that begin with this segment take part in a `CallContest`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import settings
from ...runtime.contest.whole_call_contest import CallContest
from ...runtime.segment_records import Segment

if TYPE_CHECKING:
    from ..engine.engine import Program


def begin(program: Program, segment: Segment) -> None:
    options = program.options
    with settings.patch(**options.backend.asked) as asked:  # type: ignore[attr-defined]
        if options.backend.name != "burnish" or options.sinks or not asked.compares:  # type: ignore[attr-defined]
            return

    def compiled(slots: list, args: tuple | None, kwargs: dict | None) -> Any:
        return program.run(slots, args, kwargs, takes_part=False)

    def eager(slots: list, args: tuple | None, kwargs: dict | None) -> Any:
        segment.check(slots)  # as in later calls, so that its time is included
        return program.run_eagerly(program.entry, slots, args, kwargs)

    def settle(stays: object) -> None:
        segment.contest = stays

    segment.contest = CallContest(compiled, eager, f"{program.entry.location}, whole calls", settle)
