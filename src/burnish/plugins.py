"""Plug-ins: functions of installed packages, which Burnish finds by their entry points.

    [project.entry-points."burnish.compiler"]
    mine = "my_package.for_burnish:register"       called once, before the first graph is compiled
    [project.entry-points."burnish.report"]
    mine = "my_package.for_burnish:section"        called with the data of each report

A function that fails costs a warning, and Burnish goes on without it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable
from typing import Any

from .concurrency import fork_safe_locks
from .concurrency.compute_once import once
from .errors import warn


@once
def entry_points(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(sorted(importlib.metadata.entry_points(group=f"burnish.{group}"), key=lambda point: point.name))


def call_all(group: str, call: Callable[[Any], Any]) -> list[tuple[str, Any]]:
    """What `call` returns of each of the group's functions, by their names."""
    found: list[tuple[str, Any]] = []
    for point in entry_points(group):
        try:
            found.append((point.name, call(point.load())))
        except Exception as error:
            text = f"The plug-in {point.name} ({point.value}) failed, and is left out: {type(error).__name__}: {error}"
            warn(f"burnish: {text}", RuntimeWarning)
    return found


def start_in_compiler() -> None:
    with _starting:
        if not _started:
            _started.append(True)  # first: a plug-in may compile something itself
            call_all("compiler", lambda register: register())


_started: list[bool] = []
_starting = fork_safe_locks.rlock()


@once
def identity_for_compiler() -> str:
    """What changes when compiled code may: the names and versions of plug-ins, and the times of their files."""
    return " ".join(map(_identity, entry_points("compiler")))


def _identity(point: importlib.metadata.EntryPoint) -> str:
    package = "" if point.dist is None else point.dist.version
    try:
        found = importlib.util.find_spec(point.module)
        written = os.stat(found.origin).st_mtime_ns if found is not None and found.origin is not None else 0
    except (ImportError, OSError, ValueError):
        written = 0
    return f"{point.name}={point.value} {package} {written}"
