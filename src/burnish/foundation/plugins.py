"""Plug-ins: functions of installed packages, which Burnish finds by their entry points.

    [project.entry-points."burnish.compiler"]
    mine = "my_package.for_burnish:register"       called once, before the first graph is compiled
    [project.entry-points."burnish.report"]
    mine = "my_package.for_burnish:section"        called with the data of each report

A function that fails costs a warning, and Burnish goes on without it. No lock is held while one runs, for it may wait
for an import of another thread that compiles something.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ..concurrency.first_value_cache import once
from ..concurrency.outside_errors import reraise_from_outside
from ..errors import warn


@once
def entry_points(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(sorted(importlib.metadata.entry_points(group=f"burnish.{group}"), key=lambda point: point.name))


def call_all(group: str, call: Callable[[Any], Any]) -> list[tuple[str, Any]]:
    """What `call` returns of each of the group's functions, by their names."""
    found: list[tuple[str, Any]] = []
    for point in entry_points(group):
        try:
            found.append((point.name, call(point.load())))
        except (Exception, SystemExit) as error:
            _failed.append((group, point.name, point.value))
            text = f"The plug-in {point.name} ({point.value}) failed, and is left out: {type(error).__name__}: {error}"
            warn(f"burnish: {text}", RuntimeWarning)
    return found


def start_in_compiler() -> bool:
    """Calls the functions, once. False while they run, in another thread or around this call: what is compiled then
    may lack them, so it is not stored."""
    this = object()
    if _started.setdefault("by", this) is this:  # atomic
        try:
            call_all("compiler", lambda register: register())
        finally:
            _started["all"] = this
    return "all" in _started


_started: dict[str, object] = {}
_failed: list[tuple[str, str, str]] = []


def left_out_of_compiler() -> list[tuple[str, str, str]]:
    """Plug-ins that failed: compiled code is without them."""
    return [point for point in _failed if point[0] == "compiler"]


@once
def identity_for_compiler() -> str:
    """What changes when compiled code may: the names and versions of plug-ins, and the times of their files."""
    return " ".join(map(_identity, entry_points("compiler")))


def _identity(point: importlib.metadata.EntryPoint) -> str:
    """Imports nothing, as it looks for the topmost package only."""
    try:
        version = "" if point.dist is None else point.dist.version
        found = importlib.util.find_spec(point.module.partition(".")[0])
        files = [] if found is None else sorted(_files(found.origin, found.submodule_search_locations or ()))
    except Exception as error:
        reraise_from_outside(error)
        version, files = type(error).__name__, []
    return f"{point.name}={point.value} {version} {hashlib.sha256(repr(files).encode()).hexdigest()[:16]}"


def _files(module: str | None, folders: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The Python files of a package, or of a module that is in none, and when they were written."""
    paths = [] if module is None else [Path(module)]
    for folder in folders:
        paths += [Path(below, name) for below, _, names in os.walk(folder) for name in names if name.endswith(".py")]
    for path in paths:
        yield str(path), path.stat().st_mtime_ns
