"""One graph break, with its place in the user's program, and its text in errors, logs and reports."""

from __future__ import annotations

import linecache
import textwrap
from dataclasses import dataclass

from .break_kind import BreakKind

WIDTH = 100
CALLERS_SHOWN = 6


@dataclass(frozen=True)
class Location:
    """A line of the user's program, inside one function."""

    filename: str
    line: int
    function: str

    def source_line(self) -> str:
        """The line's text without its indentation; empty when the source is not available."""
        return linecache.getline(self.filename, self.line).strip()

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"


@dataclass(frozen=True)
class Break:
    """One place where a graph ends. ``stack`` holds the user's frames, outermost first."""

    kind: BreakKind
    what: str
    stack: tuple[Location, ...]

    @property
    def headline(self) -> str:
        """The whole break on one line, for logs."""
        place = f" ({self.stack[-1]})" if self.stack else ""
        return f"{self.kind.code} {self.kind.title}: {one_line(self.what)}{place}"

    def render(self) -> str:
        """What happened, at which line of the user's code, why, and what to do about it."""
        lines = [f"Graph break {self.kind.code}: {self.kind.title}", *indented(self.what), ""]
        lines += [*stack_lines(self.stack), ""]
        lines += labelled("Why", self.kind.why)
        lines += labelled("What to do", self.kind.what_to_do)
        lines += [f"  {'Example':<12}burnish breaks {self.kind.code}"]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.headline


def stack_lines(stack: tuple[Location, ...]) -> list[str]:
    """The line that broke comes first, then its callers. Long or recursive call chains are cut."""
    if not stack:
        return ["  (no line of the program is known for this)"]
    callers = list(reversed(stack[:-1]))
    lines = place_lines(stack[-1], "at")
    for caller in callers[:CALLERS_SHOWN]:
        lines += place_lines(caller, "called from")
    if len(callers) > CALLERS_SHOWN:
        lines.append(f"  … and {len(callers) - CALLERS_SHOWN} callers further out, from {stack[0]}")
    return lines


def place_lines(place: Location, relation: str) -> list[str]:
    source = place.source_line()
    return [f"  {relation} {place}"] + ([f"      {source}"] if source else [])


def labelled(label: str, text: str) -> list[str]:
    """``text`` wrapped, indented beside its label."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {label:<12}",
        subsequent_indent=" " * 14,
        break_long_words=False,
        break_on_hyphens=False,
    )


def indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def one_line(text: str) -> str:
    return " ".join(text.split())
