"""Pins of how each semantic program ran (breaks, graphs, traces), which a comparison with eager misses.

    pins/test_closures.txt
        test_closure_sees_rebound_cell       2 graphs; traced in 1 2
        test_list_of_loop_variables          B101 B301; 3 graphs; traced in 1

The codes are the breaks of the program, the graphs those that were compiled in all its calls, and the numbers say in
which calls something was traced. A program that is traced in its last call never settles; one without a graph computes
nothing in compiled code. `BURNISH_UPDATE_PINS=1 pytest tests/capture` writes the files: read the difference.

Pins are for the oldest Python that is supported; a line `test_x[3.13]` says where another one, and those after it,
differ, as their bytecode and their library do. With a torch older than `TORCH` graphs end in more places, which is not
pinned.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from burnish import events

FOLDER = Path(__file__).parent / "pins"
PYTHON = (3, 11)
TORCH = (2, 14)
WIDTH = 90


class Course:
    """What happened while a program's world ran compiled."""

    def __init__(self) -> None:
        self.call = 0
        self.codes: set[str] = set()
        self.graphs = 0
        self.traced: set[int] = set()
        self.given_up = False

    def note(self, event: events.Event) -> None:
        match event.kind:
            case "breaks":
                self.codes.add(event.data["break_"].kind.code)
            case "segment":
                self.graphs += event.data["segment"].graph is not None
            case "traced":
                self.traced.add(self.call)
            case "guards.given_up":
                self.given_up = True

    def __str__(self) -> str:
        graphs = "1 graph" if self.graphs == 1 else f"{self.graphs or 'no'} graphs"
        parts = [
            " ".join(sorted(self.codes)),
            graphs,
            f"traced in {' '.join(map(str, sorted(self.traced)))}".rstrip(),
            "given up" if self.given_up else "",
        ]
        return "; ".join(filter(None, parts))


@contextlib.contextmanager
def watched() -> Iterator[Course]:
    course = Course()
    stop = events.subscribe(course.note, ("breaks", "segment", "traced", "guards.given_up"))
    try:
        yield course
    finally:
        stop()


def check(file: str, name: str, course: Course) -> None:
    """Compare with what is pinned for the program of this name."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < TORCH:
        return
    path = FOLDER / f"{Path(file).stem}.txt"
    if os.environ.get("BURNISH_UPDATE_PINS") == "1":
        update(path, name, str(course))
        return
    pinned = pin_of(path, name)
    assert pinned is not None, f"{path.name} has no line for {name}: BURNISH_UPDATE_PINS=1 writes it"
    assert str(course) == pinned, f"the result is right, but it came about in another way: {course}; pinned: {pinned}"


def gives_up(file: str, name: str) -> bool:
    """Whether the program is known to run eagerly from some point on."""
    is_updated = os.environ.get("BURNISH_UPDATE_PINS") == "1"
    return is_updated or "given up" in (pin_of(FOLDER / f"{Path(file).stem}.txt", name) or "")


def pin_of(path: Path, name: str) -> str | None:
    pins = read(path)
    return next((pins[known] for known in names(name) if known in pins), None)


def names(name: str) -> list[str]:
    """The names of the pins that hold for this Python, the most specific one first."""
    major, minor = PYTHON
    return [*(f"{name}[{major}.{later}]" for later in range(sys.version_info[1], minor, -1)), name]


def update(path: Path, name: str, course: str) -> None:
    here, *older = names(name)
    pins = {key: pin for key, pin in read(path).items() if key != here}
    if next((pins[known] for known in older if known in pins), None) != course:
        pins[here] = course
    write(path, pins)


@functools.cache
def read(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split(maxsplit=1) for line in lines)  # type: ignore[misc]


def write(path: Path, pins: dict[str, str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{name:<{WIDTH}} {pin}\n" for name, pin in sorted(pins.items())))
    read.cache_clear()
