"""BURNISH_DUMP: write each compilation stage of each segment to files, one directory per segment.

    stop = start(lambda: settings.current().dump)

    some/directory/0001-forward-12/     the first segment, from line 12 of a function `forward`
        graph.py      the torch calls, as Python that parses
        check.py      the generated guard check of the segment, its constants as comments
        finish.py     how results and side effects are made from the graph's outputs
        break.txt     the graph break that ends it; absent where the function returns
        1-trace.txt   the graph of Burnish's own compiler, a file for each step
        plan.txt      its kernels and calls in order
    some/directory/rewrites.txt         with the setting `fuel`, each rewrite that was made, with its number

Numbers continue those of an earlier run or another process.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.fx

from ..events import Event, subscribe
from .explain_report import result_type, tensor_type
from .text_layout import cut, shown

CONSTANT_SHOWN = 300
REWRITES = "rewrites.txt"
_lock = threading.Lock()


def start(directory: Callable[[], Path | None]) -> Callable[[], None]:
    """Write each segment to a folder in the current dump directory. The result ends it."""
    stages = threading.local()

    def write(event: Event) -> None:
        target = directory()
        if target is None:
            return
        if event.kind == "fuel":
            target.mkdir(parents=True, exist_ok=True)
            with (target / REWRITES).open("a", encoding="utf-8") as file:
                file.write(f"[{event.data['number']}] {event.data['text'].partition(' ')[2]}\n\n")
        # The event of a segment comes when it is complete: the compiler's events precede it in the same thread.
        if event.kind == "lower":
            made = [] if event.data["stage"] == "trace" else getattr(stages, "made", [])
            stages.made = [*made, (f"{len(made) + 1}-{event.data['stage']}.txt", f"{event.data['graph']}\n")]
        elif event.kind == "loops":
            stages.made = [*getattr(stages, "made", []), ("plan.txt", f"{event.data['plan']}\n")]
        elif event.kind == "segment":
            place = write_segment(target, event.data["segment"], event.data.get("where"))
            for name, text in stages.__dict__.pop("made", []):
                (place / name).write_text(text, encoding="utf-8")

    return subscribe(write)


def write_segment(directory: Path, segment: Any, where: Any = None) -> Path:
    """Write one segment's files; returns their directory."""
    name = re.sub(r"\W+", "_", where.function.rpartition(".")[2]).strip("_") if where is not None else "segment"
    place = _next_directory(directory, f"{name}-{where.line}" if where is not None else name)
    heading = f"# {where}\n" if where is not None else ""
    if segment.graph_module is not None:
        (place / "graph.py").write_text(heading + graph_text(segment.graph_module), encoding="utf-8")
    for function in ("check", "finish"):
        text = function_text(getattr(segment, function))
        if text is not None:
            (place / f"{function}.py").write_text(heading + text, encoding="utf-8")
    if segment.break_ is not None:
        (place / "break.txt").write_text(segment.break_.render() + "\n", encoding="utf-8")
    return place


def _next_directory(directory: Path, name: str) -> Path:
    with _lock:
        directory.mkdir(parents=True, exist_ok=True)
        taken = [int(entry.name[:4]) for entry in directory.iterdir() if re.match(r"\d{4}-", entry.name)]
        number = max(taken, default=0) + 1
        while True:
            place = directory / f"{number:04}-{name}"
            try:
                place.mkdir()
                return place
            except FileExistsError:  # another process made it
                number += 1


def graph_text(graph: torch.fx.GraphModule) -> str:
    """The graph as a Python function, its inputs described above it."""
    lines = ["import torch", ""]
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            kind = result_type(node)
            lines.append(f"# {node.name}: {kind}" if kind else f"# {node.name}")
    return "\n".join(lines) + "\n\n" + graph.code.strip() + "\n"


def function_text(function: Any) -> str | None:
    """The source of a generated function, with the constants its names stand for."""
    source = getattr(function, "__source__", None)
    if source is None:
        return None
    names = sorted(set(re.findall(r"\bk\d+\b", source)), key=lambda name: int(name[1:]))
    constants = [f"# {name} = {_constant_text(function.__globals__.get(name))}" for name in names]
    return "\n".join([*constants, "", source.strip()]) + "\n"


def _constant_text(value: Any) -> str:
    return cut(in_words(value), CONSTANT_SHOWN)


def in_words(value: Any) -> str:
    """A repr that neither reads a tensor's data nor runs user code."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return f"a tensor, {tensor_type(value)}"
    if kind in (tuple, list, set, frozenset):
        return (
            f"{kind.__name__}({', '.join(map(in_words, value))})"
            if kind is not tuple
            else f"({', '.join(map(in_words, value))})"
        )
    if kind.__module__ in ("builtins", "torch", "types") and kind is not dict:
        return shown(value)
    return f"<{kind.__module__}.{kind.__qualname__}>"
