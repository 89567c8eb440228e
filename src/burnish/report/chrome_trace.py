"""``trace``: the timeline of a run in the format of Chrome's tracing, which Perfetto and torch's tools read.

    with burnish.trace("trace.json"):
        model(x)

Times are microseconds after `baseTimeNanoseconds`, as in the files that `torch.profiler` exports: to show both in one
picture, add the difference of the two bases to the times of one of them.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .exclude_from_capture import exclude_from_capture
from .record_run import RunRecorder
from .write_recorded_run import RecordedFile

CATEGORIES = {"graph": "call", "kernel": "kernel", "library": "library", "backward": "backward", "guards": "guards"}
"""Of what runs; the others are stages of the compiler."""


class Trace(RecordedFile):
    """The context manager."""

    @exclude_from_capture
    def __enter__(self) -> Trace:
        super().__enter__()
        self.base = time.time_ns() - int(time.perf_counter() * 1e9)
        return self

    def write(self) -> None:
        with self.path.open("w", encoding="utf-8") as file:
            json.dump(chrome_trace(self.run, self.base), file, separators=(",", ":"))


def chrome_trace(run: RunRecorder, base: int) -> dict[str, Any]:
    """`base`: the nanoseconds since 1970 at which `time.perf_counter` was 0."""
    process = os.getpid()
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}
        for thread, name in run.threads.items()
    ]
    for category, name, line, start, seconds, thread in run.spans:
        kind = CATEGORIES.get(category, "compile")
        event = {"ph": "X", "name": name, "cat": f"burnish.{kind}", "pid": process, "tid": thread}
        event |= {"ts": round(start * 1e6, 3), "dur": round(seconds * 1e6, 3)}
        events.append(event | {"args": {"line": line}} if line else event)
    for miss in run.misses:
        first = miss["failures"][0] if miss["failures"] else {}
        at = {"ts": round((run.started + miss["at"]) * 1e6, 3), "pid": process, "tid": miss["thread"], "s": "t"}
        events.append({"ph": "i", "name": "recompile", "cat": "burnish.compile", **at, "args": first})
    return {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
        "burnish": {"spans_left_out": run.spans_dropped},
        "traceEvents": events,
    }
