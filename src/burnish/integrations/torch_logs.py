"""TORCH_LOGS and ``torch._logging.set_logs``: Burnish reports its breaks, recompiles and graphs there as well.

    TORCH_LOGS=graph_breaks,recompiles python train.py

    V1126 12:48:13 … [__graph_breaks] B101 Python control flow depends on a tensor's value …

Each artifact of torch's log shows events of some kinds. They are listened to only while one is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from .. import events

ARTIFACTS: dict[str, tuple[str, ...]] = {
    "breaks": ("graph_breaks",),
    "guards.missed": ("recompiles", "recompiles_verbose"),
    "guards.given_up": ("recompiles", "recompiles_verbose"),
    "graph": ("graph", "graph_code"),
    "kernels": ("output_code", "kernel_code"),
}
"""By the kind of an event, the artifacts that show it."""

PARENT = "torch._dynamo"
"""The log of torch that carries them, with its handlers and levels."""

_stop: Callable[[], None] | None = None


def follow() -> None:
    """Listen to the events that torch's log shows now."""
    stop()
    global _stop
    loggers = {kind: tuple(map(logger_of, names)) for kind, names in ARTIFACTS.items()}
    kinds = [kind for kind, found in loggers.items() if any(map(is_on, found))]
    if kinds:
        _stop = events.subscribe(lambda event: show(event, loggers[event.kind]), kinds)


def stop() -> None:
    global _stop
    if _stop is not None:
        _stop()
    _stop = None


def logger_of(artifact: str) -> logging.Logger:
    return torch._logging.getArtifactLogger(f"{PARENT}.burnish", artifact)


def is_on(logger: logging.Logger) -> bool:
    return logger.isEnabledFor(logging.DEBUG)


def show(event: events.Event, loggers: tuple[logging.Logger, ...]) -> None:
    for logger in filter(is_on, loggers):
        logger.debug("%s", text_of(event, logger.name))
        return


def text_of(event: events.Event, name: str) -> str:
    module = event.data.get("graph_module")
    if module is not None and name.endswith("graph_code"):
        return module.print_readable(print_output=False)
    from ..report import show_stages  # most programs print nothing

    return show_stages.render(event)


def set_logs(original: Any, *args: Any, **kwargs: Any) -> None:
    """In place of ``torch._logging.set_logs``, after which other events may be asked for."""
    original(*args, **kwargs)
    follow()
