"""``report``: what happened in a run, as one HTML file that needs no other file and no network.

    with burnish.report("report.html"):
        train()

The recorded run becomes one JSON document inside the page; `page/report.js` makes the elements, and sets text only as
text. So nothing that a program is named can run as a script.
"""

from __future__ import annotations

import copy
import functools
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..foundation import plugins
from .profile_segments import copy_bandwidth, seconds_of
from .record_run import FunctionCalls, RunRecorder, machine
from .summary_in_words import summary
from .write_recorded_run import RecordedFile

PAGE = Path(__file__).parent / "page"
MOST_SPANS = 4000
"""In the page: the longest ones. `burnish.trace` writes all."""

SIDE = 768
"""Of the square matrices whose product is measured to know how fast this machine multiplies."""


class Report(RecordedFile):
    """The context manager."""

    summary: list[str] | None = None
    """The top of the page as lines of text, when it has been written."""

    def write(self) -> None:
        data = page_data(self.run)
        self.path.write_text(page(data | {"sections": sections_of_plugins(data)}), encoding="utf-8")
        self.summary = summary(data)


def page(data: dict[str, Any]) -> str:
    """The template with the styles, the script and the data. In JSON, `<` only occurs inside strings."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    parts = {"style": "report.css", "script": "report.js"}
    made = (PAGE / "report.html").read_text("utf-8")
    for name, file in parts.items():
        made = made.replace(f"/* {name} */", (PAGE / file).read_text("utf-8"))
    return made.replace("/* data */", text.replace("<", "\\u003c"))


def page_data(run: RunRecorder) -> dict[str, Any]:
    texts: dict[str, int] = {}
    limits = machine_limits() if machine()["gpu"] is None else None
    graphs = [graph_data(graph, run, limits, texts) for graph in run.graphs]
    spans = sorted(run.spans, key=lambda span: -span[4])[:MOST_SPANS]
    strings: dict[str, int] = {}
    threads = {thread: k for k, thread in enumerate(run.threads)}
    return {
        "program": " ".join(map(str, sys.argv)) if sys.argv and sys.argv[0] else "Python",
        "python": platform.python_version(),
        "machine": machine(),
        "limits": limits,
        "seconds": run.ended - run.started,
        "segments": [segment_data(segment) for segment in run.segments],
        "breaks": [{k: v for k, v in found.items() if k != "key"} for found in run.breaks],
        "misses": run.misses,
        "graphs": graphs,
        "contests": run.contests,
        "notes": [{**dict(key), "times": n} for key, n in Counter(tuple(x.items()) for x in run.notes).items()],
        "spans": [
            [category, index(strings, name), index(strings, line), round((start - run.started) * 1e6, 1),
             round(seconds * 1e6, 1), threads[thread]]
            for category, name, line, start, seconds, thread in sorted(spans, key=lambda span: span[3])
        ],
        "spans_left_out": len(run.spans) - len(spans) + run.spans_dropped,
        "threads": list(run.threads.values()),
        "strings": list(strings),
        "texts": list(texts),
    }  # fmt: skip


def sections_of_plugins(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Each plug-in gets the report's data, and returns the columns and rows of a table, which has its name."""

    def table_of(section: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        columns, rows = section(copy.deepcopy(data))
        return {"columns": [*map(str, columns)], "rows": [[*map(str, row)] for row in rows]}

    return [{"title": name, **table} for name, table in plugins.call_all("report", table_of)]


def index(table: dict[str, int], text: str) -> int:
    return table.setdefault(text, len(table))


def segment_data(segment: dict[str, Any]) -> dict[str, Any]:
    totals: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for one in segment["measured"]:
        totals[one.part.kind] += one.seconds
        calls[one.part.kind] = max(calls[one.part.kind], one.calls)
    moved = max((one.bytes for one in segment["measured"]), default=0)
    kept = {key: value for key, value in segment.items() if key != "measured"}
    return kept | {"totals": totals, "checks": calls["guards"], "calls": calls["graph"], "bytes": moved}


def graph_data(graph: dict[str, Any], run: RunRecorder, limits: dict[str, float] | None, texts: dict[str, int]) -> Any:
    measured = [] if graph["segment"] is None else run.segments[graph["segment"]]["measured"]
    plans = []
    for plan in graph["plans"]:
        times = times_of_steps(plan, measured)
        steps = []
        for number, step in enumerate(plan["steps"]):
            calls, total, best = times.get(number, (0, 0.0, None))
            estimate = estimated(step, limits)
            steps.append(
                {**step, "text": index(texts, step["text"]), "calls": calls, "total": total, "best": best,
                 "estimate": estimate}
            )  # fmt: skip
        plans.append({**plan, "steps": steps})
    return {**graph, "operations": index(texts, "\n".join(graph["operations"])), "plans": plans}


def times_of_steps(plan: dict[str, Any], measured: list[FunctionCalls]) -> dict[int, tuple[int, float, float]]:
    """Calls, seconds, and the seconds of the fastest call, of each step. A step may run several functions."""
    names = [step["name"] for step in plan["steps"]]
    found: dict[int, tuple[int, float, float]] = {}
    for one in measured:
        if one.part.step >= 0 and one.calls and one.steps == names:
            calls, seconds, best = found.get(one.part.step, (0, 0.0, 0.0))
            found[one.part.step] = max(calls, one.calls), seconds + one.seconds, best + one.best
    return found


def estimated(step: dict[str, Any], limits: dict[str, float] | None) -> float | None:
    """The seconds that the step needs at least, if this machine computes or moves memory at its measured speed."""
    if limits is None:
        return None
    return max((step["operations"] or 0) / limits["operations"], (step["read"] + step["written"]) / limits["bytes"])


@functools.cache
def machine_limits() -> dict[str, float]:
    """Operations and bytes per second of this machine's CPU: those of a large product, and of a copy of memory."""
    x = torch.ones(SIDE, SIDE)
    best = min(seconds_of(lambda: torch.mm(x, x)) for _ in range(4))
    return {"operations": 2 * SIDE**3 / best, "bytes": copy_bandwidth()}
