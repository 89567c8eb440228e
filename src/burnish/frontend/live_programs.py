"""The compiled programs that are alive: ``burnish.reset`` and ``burnish.profile`` reach them all. And the state of one
in words, for a person."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from ..capture.engine.engine import Program

_programs: weakref.WeakSet[Program] = weakref.WeakSet()


def keep_track(program: Program) -> None:
    """Let ``reset`` find a program for as long as it is alive."""
    _programs.add(program)


def live_programs() -> list[Program]:
    return list(_programs)


def forget_all() -> None:
    for program in live_programs():
        program.forget()


def live_segments() -> Iterator[tuple[Any, Any]]:
    for program in live_programs():
        yield from segments_of(program)


def segments_of(program: Program) -> Iterator[tuple[Any, Any]]:
    """Each segment of a program, and where it begins."""
    for point in (program.entry, *program.continuations.values()):
        for segment in point.segments:
            yield segment, point.location


def state_of(program: Program) -> str:
    """For a person: whether it is compiled, and whether that is what ran."""
    segments = sum(1 for _ in segments_of(program))
    if not segments:
        return "compiled when it is called"
    how = "ran compiled" if program.ran_compiled else "ran as plain Python"
    return f"{segments} segment{'s' * (segments != 1)}, the last call {how}"


def function_as_html(program: Program, name: str) -> str:
    """A compiled function in a notebook. Its repr cannot be changed."""
    return as_html(f"compiled function {name}: {state_of(program)}")


def as_html(text: str) -> str:
    """For a notebook."""
    from ..report.text_layout import preformatted  # here: programs need no reports

    return preformatted(text)
