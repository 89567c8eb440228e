"""Graph breaks: the one object that says why a graph ended, where, and what helps.

Capture makes a ``Break`` wherever a segment has to end. Errors under ``fullgraph=True``, ``explain``, logs and reports
all show it and add nothing of their own:

    >>> where = Location("train.py", 41, "forward")
    >>> print(Break(OPAQUE_CALL, "call of scipy.fft.dct", (where,)).headline)
    B201 a call into native code with unknown behaviour: call of scipy.fft.dct (train.py:41 in forward)

The modules of this package are the catalog of break kinds: every reason to end a graph, each with its cure. Users read
these records, so a record must be true and must help. ``why`` explains the reason to readers who do not know how
capture works. ``what_to_do`` names the way out. ``broken`` and ``fixed`` show it. Both examples are whole programs:
they define ``fn``, the function a user would compile, and the code after its definition runs it.

Codes never change their meaning. B1xx ``data``, B2xx ``calls``, B3xx ``language``, B4xx ``state``, B5xx ``limits``.
"""

from __future__ import annotations

import linecache
import textwrap
from dataclasses import dataclass

from .calls import (
    BACKWARD_CALL,
    COLLECTIVE_CALL,
    DISABLED_CALL,
    FOREIGN_COMPILED,
    GRAPH_BREAK_REQUEST,
    OPAQUE_CALL,
    OPAQUE_FUNCTION,
    RANDOM_CALL,
)
from .data import DATA_BRANCH, DATA_READ, DATA_SHAPE, LIVE_VALUE, SUBCLASS_TENSOR, TENSOR_ERROR, UNKNOWN_TENSOR
from .language import OPAQUE_OPCODE, OUTSIDE_ITERATOR, RAISED, UNREBUILDABLE, USER_HASH
from .limits import SEGMENT_LIMIT
from .record import CATALOG, GROUPS, BreakKind
from .state import GLOBAL_SWITCH, GPU_CALL, TENSOR_STATE, UNSUPPORTED_WRITE

__all__ = [
    "BACKWARD_CALL",
    "CATALOG",
    "COLLECTIVE_CALL",
    "DATA_BRANCH",
    "DATA_READ",
    "DATA_SHAPE",
    "DISABLED_CALL",
    "FOREIGN_COMPILED",
    "GLOBAL_SWITCH",
    "GPU_CALL",
    "GRAPH_BREAK_REQUEST",
    "GROUPS",
    "LIVE_VALUE",
    "OPAQUE_CALL",
    "OPAQUE_FUNCTION",
    "OPAQUE_OPCODE",
    "OUTSIDE_ITERATOR",
    "RAISED",
    "RANDOM_CALL",
    "SEGMENT_LIMIT",
    "SUBCLASS_TENSOR",
    "TENSOR_ERROR",
    "TENSOR_STATE",
    "UNKNOWN_TENSOR",
    "UNREBUILDABLE",
    "UNSUPPORTED_WRITE",
    "USER_HASH",
    "Break",
    "BreakKind",
    "Location",
]

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
