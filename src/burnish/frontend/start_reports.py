"""Reports, dumps, progress lines and names in profiles start when a setting or torch's profiler first asks for them."""

from __future__ import annotations

import functools
import importlib
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from .. import settings
from ..errors import warn
from ..report.subscribe_while_enabled import redraws_lines, while_wanted
from .live_programs import live_segments

PROFILER_CALLS = ("_run_on_profiler_start", "_run_on_profiler_stop")
"""Torch calls two functions where a profiler starts and ends; there is no public way to hear of it."""


def start_reports(report: Callable[..., Any]) -> None:
    """``report``: ``burnish.report``, which the setting of the same name starts for a whole process."""
    for setting, reader in (("show", "show_stages"), ("dump", "dump_stages")):
        wanted = operator.attrgetter(setting)
        while_wanted(settings.on_change, wanted, functools.partial(_read_events, reader, setting))
    while_wanted(settings.on_change, _bisects, _minimize_differing_graph)
    while_wanted(settings.on_change, _shows_progress, functools.partial(_read_events, "compile_progress", "progress"))
    while_wanted(
        settings.on_change, lambda current: current.report is not None, functools.partial(_report_process, report)
    )
    _name_ranges_in_profiler()


def _read_events(reader: str, setting: str) -> Callable[[], None]:
    return importlib.import_module(f"burnish.report.{reader}").start(lambda: getattr(settings.current(), setting))


def _bisects(current: settings.Settings) -> bool:
    return current.check == "bisect"


def _minimize_differing_graph() -> Callable[[], None]:
    minimizer = importlib.import_module("burnish.cli.minimize.minimize_on_first_difference")
    return minimizer.start(lambda: _bisects(settings.current()))


def _shows_progress(current: settings.Settings) -> bool:
    return current.progress and redraws_lines(sys.stderr)


def _report_process(report: Callable[..., Any]) -> Callable[[], None]:
    folder = settings.current().report
    assert folder is not None
    return importlib.import_module("burnish.report.process_report").start(folder, report)


def _name_ranges_in_profiler() -> None:
    begin, end = (getattr(torch.autograd.profiler, name, None) for name in PROFILER_CALLS)
    if begin is None or end is None:
        return
    running: list[Callable[[], None]] = []

    def start_with_ranges() -> None:
        begin()
        try:
            if not running:
                running.append(importlib.import_module("burnish.report.profiler_ranges").start(live_segments))
        except Exception as error:
            tell(error)

    def stop_with_ranges() -> None:
        try:
            while running:
                running.pop()()
        except Exception as error:
            tell(error)
        finally:
            end()

    def tell(error: Exception) -> None:
        if settings.current().on_error == "raise":
            raise error
        warn(f"burnish: compiled code has no names in this profile: {type(error).__name__}: {error}")

    for name, made in zip(PROFILER_CALLS, (start_with_ranges, stop_with_ranges), strict=True):
        setattr(torch.autograd.profiler, name, made)
