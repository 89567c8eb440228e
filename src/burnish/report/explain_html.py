"""HTML page of ``ExplainOutput.html()``: one file without scripts or external resources; all text is escaped."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from html import escape
from traceback import FrameSummary
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .explain_report import BreakReason, ExplainOutput

CONTEXT = 2

STYLE = """\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
pre { font: 13px/1.45 ui-monospace, monospace; overflow-x: auto; padding: .6rem .8rem; border-radius: 6px;
      background: rgba(128, 128, 128, .12); }
pre .hit { font-weight: bold; background: rgba(230, 120, 0, .28); }
section.break { border-left: 4px solid #d70; padding: .1rem 0 .1rem 1rem; margin: 1.2rem 0; }
summary { cursor: pointer; padding: .2rem 0; }
.place { font: 13px ui-monospace, monospace; opacity: .8; }
"""


def page(output: ExplainOutput) -> str:
    from .explain_report import census, list_operations

    body = ["<h1>What Burnish made of it</h1>", f"<p>{escape(output.summary())}</p>"]
    for title, wanted in (("Graph breaks", True), ("Not compiled", False)):
        reasons = [reason for reason in output.break_reasons if reason.graph_break is wanted]
        if reasons:
            body += [f"<h2>{title}</h2>", *map(break_section, reasons)]
    body.append("<h2>Graphs</h2>" if output.graphs else "<p>No torch operation was recorded.</p>")
    for i, graph in enumerate(output.graphs, 1):
        body.append(folded(f"Graph {i}: {census(graph)}", list_operations(graph)))
    if output.out_guards:
        body.append("<h2>Guards</h2>")
        body.append(folded("The graphs are used again while these hold", map(str, output.out_guards)))
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Burnish: explain</title>\n'
        f"<style>\n{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def break_section(reason: BreakReason) -> str:
    found = reason.source
    if found is None:
        return f'<section class="break"><pre>{escape(reason.reason)}</pre></section>'
    parts = [f"<h3>{escape(found.kind.code)} {escape(found.kind.title)}</h3>", f"<p>{escape(found.what)}</p>"]
    frames = list(reversed(reason.user_stack))
    if frames:
        parts += [f'<div class="place">{escape(place(frames[0]))}</div>', excerpt(frames[0])]
    if len(frames) > 1:
        parts.append(folded("called from", (f"{place(frame)}\n    {frame.line or ''}" for frame in frames[1:])))
    parts.append(f"<p><b>Why.</b> {escape(found.kind.why)}</p>")
    parts.append(f"<p><b>What to do.</b> {escape(found.kind.what_to_do)}</p>")
    return '<section class="break">' + "\n".join(parts) + "</section>"


def place(frame: FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


def excerpt(frame: FrameSummary) -> str:
    """The line with its neighbours, marked; empty if the source is not available."""
    lines = linecache.getlines(frame.filename)
    if not 0 < frame.lineno <= len(lines):
        return ""
    shown = []
    for number in range(max(1, frame.lineno - CONTEXT), min(len(lines), frame.lineno + CONTEXT) + 1):
        text = escape(f"{number:>5}  {lines[number - 1].rstrip()}")
        shown.append(f'<span class="hit">{text}</span>' if number == frame.lineno else text)
    return "<pre>" + "\n".join(shown) + "</pre>"


def folded(title: str, lines: Iterable[str]) -> str:
    text = escape("\n".join(lines))
    return f"<details><summary>{escape(title)}</summary><pre>{text}</pre></details>"
