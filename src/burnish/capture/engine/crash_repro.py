"""Crash reproduction: saves an internal failure to disk so that it can be inspected and replayed.

A directory with three files: ``report.txt`` (the error, the position in the user's program, versions), ``guards.txt``
(what the trace had guarded) and ``replay.py``, which makes inputs of the same shapes and runs the torch calls recorded
so far:

    python that/directory/replay.py
"""

from __future__ import annotations

import platform
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch

from ... import settings
from ...concurrency.outside_errors import reraise_from_outside
from .build_fx_graph import build_graph


def write_failure(tracer: Any, error: BaseException) -> Path | None:
    """Write the directory and return it, or None if that fails. Never raises: that would hide the failure."""
    try:
        base = settings.current().dump
        place = Path(tempfile.mkdtemp(prefix="burnish-failure-", dir=base if base is None or base.is_dir() else None))
        (place / "report.txt").write_text(_report(tracer, error), encoding="utf-8")
        (place / "guards.txt").write_text(
            "\n".join(f"{g.kind} {g.source} {g.expected!r}" for g in tracer.heap.guards), encoding="utf-8"
        )
        (place / "replay.py").write_text(_replay(tracer), encoding="utf-8")
    except Exception as error:
        reraise_from_outside(error)
        return None
    return place


def _report(tracer: Any, error: BaseException) -> str:
    lines = ["".join(traceback.format_exception(error)), "The program stood at, outermost first:"]
    lines += [f"  {location}" for location in tracer.user_stack()]
    lines.append(f"\nPython {platform.python_version()}, torch {torch.__version__}, {platform.platform()}")
    return "\n".join(lines)


def _replay(tracer: Any) -> str:
    recorder = tracer.recorder
    module = build_graph(recorder, [])
    inputs = ",\n    ".join(_input(example) for example in recorder.examples)
    return (
        f'"""The torch calls recorded before the failure, on inputs of the same shapes."""\n\nimport torch\n'
        f"from torch import device, inf, nan  # names the graph may use\n\n"
        f"{module.code}\n\ninputs = [\n    {inputs}\n]\nforward(None, *inputs)\n"
    )


def _input(example: Any) -> str:
    if not isinstance(example, torch.Tensor):
        return repr(example)
    made = f"torch.ones({tuple(example.shape)}, dtype={example.dtype}, device={str(example.device)!r})"
    return f"{made}.requires_grad_()" if example.requires_grad else made
