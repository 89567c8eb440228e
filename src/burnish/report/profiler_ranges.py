"""Ranges in `torch.profiler`: while it runs, segments, kernels and library calls are named, with the user's lines.

    with torch.profiler.profile() as p:
        compiled(x)                               burnish segment model.py:12 in forward
                                                    burnish kernel softmax  model.py:14 in forward

Functions are replaced only between the profiler's start and its end; otherwise nothing is different.
"""

from __future__ import annotations

import os.path
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ..events import Event, subscribe
from ..foundation.torch_private import RecordFunctionFast as Range
from .profile_segments import ObservedFunction, Profile
from .text_layout import line_text

WORDS = {"graph": "segment", "library": "call"}


def start(programs: Callable[[], Iterable[tuple[Any, Any]]]) -> Callable[[], None]:
    """Name what runs from now on, until the result is called."""
    profile, here = Profile(programs, around), threading.local()

    def name_stage(event: Event) -> None:
        stages = here.__dict__.setdefault("stages", [])
        if event.kind == "stage.begin":
            stages.append(Range(f"burnish {event.data['stage']}"))
            stages[-1].__enter__()
        elif stages:
            stages.pop().__exit__(None, None, None)

    stop_stages = subscribe(name_stage, ["stage.begin", "stage.end"])
    try:
        profile.__enter__()
    except BaseException:
        stop_stages()
        raise

    def stop() -> None:
        try:
            profile.__exit__(None, None, None)
        finally:
            stop_stages()

    return stop


def around(function: Callable, part: ObservedFunction) -> Callable:
    where = short_line(line_text(part.line)) if part.line else ""
    name = short_line(part.name) if part.step < 0 else part.name
    label = f"burnish {WORDS.get(part.kind, part.kind)} {name}" + (f"  {where}" if where else "")

    def named(*args: Any, **kwargs: Any) -> Any:
        with Range(label):
            return function(*args, **kwargs)

    return named


def short_line(line: str) -> str:
    """Without the folder of the file."""
    return os.path.basename(line)
