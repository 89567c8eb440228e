"""What a run of the benchmark measured, as plain data that goes into a JSON file and comes back the same.

    run = Run.read("bench.json")
    run.rows[0].results["burnish"].ratio            # eager's time over Burnish's: 2.0 is twice as fast

Everything is in seconds and bytes. What was not measured is `None`, and `why` says why where there is a reason; a zero
is a zero that was measured.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
EAGER, BURNISH, TORCH_COMPILE = "eager", "burnish", "torch.compile"
MODES = ("inference", "train", "train-step")


@dataclass
class Cold:
    """A process of its own with empty caches, or with what another one left there, for one contestant and one model."""

    process: float
    """From the start of the process to the first result."""
    torch_import: float
    build: float
    """Importing the model's library and building the model."""
    own_import: float
    """What the contestant imports for itself; not in `first_call`."""
    first_call: float
    """From handing the model over to the first result; of whole steps to the second."""
    memory_built: int
    """Resident when the model was built, before the contestant was imported."""
    memory_peak: int
    """The most that was resident from start to end, compiling included."""
    memory_steady: int
    """The most that was resident in the calls after the first ones, when what compiling left was given back."""
    foreign_load: float | None = None
    """The share of all cores that other processes took meanwhile."""


@dataclass
class Result:
    """One contestant on one model."""

    why: str | None = None
    """Why there is nothing to show: the contestant does not do this, or failed at it."""
    seconds: float | None = None
    """A call in the steady state: the median of the blocks' medians."""
    ratio: float | None = None
    """Eager's time over this one's: the median over the rounds, each of which has a block of both."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    """The quartiles of that ratio."""
    blocks: list[float] = field(default_factory=list)
    """The median of each block, by round."""
    first_call: float | None = None
    """Imports aside. From the process of its own, where there was one; else in the process of all contestants."""
    cold: Cold | None = None
    warm: Cold | None = None
    """The same with caches that the cold one filled, where that was asked for."""
    error: float | None = None
    """The largest difference from float64, as a share of the largest value in its tensor."""
    error_ratio: float | None = None
    """That over eager's own, neither taken for less than one rounding."""
    why_no_error: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    """What the contestant tells of itself: seconds of its export, warnings."""


@dataclass
class Row:
    """One model in one mode."""

    model: str
    mode: str
    results: dict[str, Result] = field(default_factory=dict)
    breaks: int | None = None
    """Graph breaks of Burnish; None where nobody could say."""
    graphs: int | None = None
    foreign_load: float | None = None
    """The share of all cores that other processes took while the steady state was measured."""


@dataclass
class Overhead:
    """What a call costs over eager's, for a function of one operator, stacks of small modules and wide ones."""

    program: str
    modules: int
    """0 for the function."""
    eager: float
    over: dict[str, float] = field(default_factory=dict)
    """Seconds over eager's by contestant: negative where what was compiled is faster."""
    why: dict[str, str] = field(default_factory=dict)
    beyond: dict[str, float] = field(default_factory=dict)
    """Seconds over those of the compiled graph alone, called with its inputs at hand."""
    parameters: int = 0
    """In all: as many as modules in a stack, where each has one."""


@dataclass
class Run:
    """All of it, with where and how."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    contestants: list[str]
    rows: list[Row] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)
    format: int = FORMAT

    def write(self, path: str | Path) -> None:
        """Whole or not at all: a run that is interrupted leaves the last complete state."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
        unfinished.write_text(
            json.dumps(finite(dataclasses.asdict(self)), indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
        unfinished.replace(path)

    @classmethod
    def read(cls, path: str | Path) -> Run:
        return cls.from_data(json.loads(Path(path).read_text(encoding="utf-8")))

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Run:
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"it is no benchmark of format {FORMAT}")
        rows = [
            Row(**{**row, "results": {name: result_from(found) for name, found in row["results"].items()}})
            for row in data["rows"]
        ]
        return cls(**{**data, "rows": rows, "overheads": [Overhead(**found) for found in data["overheads"]]})


def result_from(data: dict[str, Any]) -> Result:
    known = dict(data)
    for name in ("cold", "warm"):
        if known.get(name) is not None:
            known[name] = Cold(**known[name])
    for name in ("error", "error_ratio"):
        if known.get(name) == "infinite":
            known[name] = math.inf
    return Result(**known)


def finite(value: Any) -> Any:
    """JSON has no infinity; an error can be one."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "infinite"
    return value
