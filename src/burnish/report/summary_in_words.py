"""The top of a report as text, which `burnish report` prints: breaks, recompiles and their causes, and where time goes.

print("\n".join(summary(page_data(run))))
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from .text_layout import count, cut, duration, shorten, table_lines

SHOWN = 8
"""Of each kind."""

WIDTH = 160


def summary(data: dict[str, Any]) -> list[str]:
    """Lines of text from the data of a report."""
    steps = [step for graph in data["graphs"] for plan in graph["plans"] for step in plan["steps"]]
    compiling = sum(graph["seconds"].get("compile", 0.0) for graph in data["graphs"])
    compiling += sum(segment["seconds"].get("trace", 0.0) for segment in data["segments"])
    head = [
        count(len(data["segments"]), "segment"),
        count(len(data["breaks"]), "graph break"),
        count(len(data["misses"]), "recompile"),
        f"{duration(compiling)} of {duration(data['seconds'])} compiling",
    ]
    if not data["segments"]:
        return ["No compiled code was made or run. Does the program call burnish.compile?"]
    parts = [
        [line for found in data["breaks"] for line in break_lines(found)],
        [recompile_line(miss) for miss in data["misses"]],
        [f"Slower than compiled: {cut(note['text'], WIDTH)}" for note in data["notes"] if note["slower"]],
        [contest_line(contest) for contest in data["contests"] if contest["kept"] == "eager"],
        memory_lines(data),
        busiest_lines(steps),
    ]
    return [", ".join(head), *(line for part in parts if part for line in ["", *shorten(part, SHOWN, 0, "lines")])]


def place_text(place: dict[str, Any]) -> str:
    return f"{Path(place['file']).name}:{place['line']} in {place['name']}"


def break_lines(found: dict[str, Any]) -> list[str]:
    """The break, the line of the program at which it is, and what is there."""
    lines = [f"Graph break {found['code']}: {found['title']}  (burnish breaks {found['code']})"]
    if found["stack"]:
        place = found["stack"][0]
        lines.append(f"    at {place_text(place)}: {cut(found['what'], WIDTH)}")
        lines += [f"        {line.strip()}" for line in place["source"][place["line"] - place["first"] :][:1]]
    return lines


def recompile_line(miss: dict[str, Any]) -> str:
    why = "no guard is known to have failed"
    if miss["failures"]:
        first = miss["failures"][0]
        why = cut(f"{first['source']} was {first['expected']} and is now {first['found']}", WIDTH)
    return f"Recompiled {place_text(miss['place'])}: {why}"


def contest_line(contest: dict[str, Any]) -> str:
    times = f"{contest['compiled'] * 1e3:.3g} ms compiled, {contest['eager'] * 1e3:.3g} ms eager"
    return f"Eager is faster and runs: {cut(contest['text'].partition(':')[0], WIDTH)} ({times})"


def memory_lines(data: dict[str, Any]) -> list[str]:
    """Of the graph that needs most."""
    plans = [(plan["peak"], number, plan) for number, graph in enumerate(data["graphs"]) for plan in graph["plans"]]
    if not plans:
        return []
    _, number, plan = max(plans, key=lambda each: each[0])
    sizes = [size_text(plan[name]) for name in ("inputs", "arena", "outputs")]
    at = data["graphs"][number]["segment"]
    where = "" if at is None else f", which begins at {place_text(data['segments'][at]['place'])}"
    text = "inputs and weights {}, intermediate values {}, outputs {}".format(*sizes)
    return [f"Memory of the largest graph{where}: {text}"]


def size_text(size: float) -> str:
    units = ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.3g} {units[0]}"


def busiest_lines(steps: list[dict[str, Any]]) -> list[str]:
    """The lines of the program whose kernels took most of the time."""
    seconds: Counter[str] = Counter()
    for step in steps:
        seconds[step["lines"][0] if step["lines"] else "no line known"] += step["total"]
    total, names = seconds.total(), Counter(Path(line).name for line in seconds)
    rows = [
        (line if names[Path(line).name] > 1 else Path(line).name, f"{each * 1e3:.1f} ms", f"{each / total:.0%}")
        for line, each in seconds.most_common(SHOWN)
        if each
    ]
    return (
        ["Time in kernels and library calls, by line:", *(f"    {line}" for line in table_lines(rows))] if rows else []
    )
