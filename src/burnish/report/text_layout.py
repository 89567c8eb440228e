"""Text layout of reports: wrapping, indenting, and leaving out the middle of long lists."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

WIDTH = 100


def labelled(label: str, text: str) -> list[str]:
    """``text`` wrapped, hanging beside its label."""
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=f"  {label:<12}",
        subsequent_indent=" " * 14,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shifted(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column is aligned to the left, the others to the right."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]).rstrip() for row in rows]


def shorten(lines: Sequence[str], head: int, tail: int, noun: str) -> list[str]:
    """Beginning and end of a long list, and how much was left out between them."""
    if len(lines) <= head + tail + 1:
        return list(lines)
    return [*lines[:head], f"… {len(lines) - head - tail} more {noun}", *(lines[-tail:] if tail else [])]


def shown(value: Any) -> str:
    """Its repr. Python does not write integers of thousands of digits."""
    try:
        return repr(value)
    except ValueError:
        bits = f" of {value.bit_length()} bits" if isinstance(value, int) else ""
        return f"<{type(value).__qualname__}{bits}>"


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """With three digits: ``0.4 ms``, ``84 ms``, ``1.32 s``."""
    if seconds >= 0.9995:
        return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.0095 else f"{seconds * 1e3:.1f} ms"


def preformatted(text: str) -> str:
    """A table for a notebook."""
    return f"<pre>{escape(text)}</pre>"


def line_text(line: Any) -> str:
    """`model.py:12 in forward`, from the form of a traceback's line."""
    head, _, rest = str(line or "").strip().removeprefix('File "').partition('", line ')
    number, _, function = rest.partition(", in ")
    return f"{head}:{number} in {function}" if rest else head
