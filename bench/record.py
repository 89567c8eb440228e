"""The measurements of a run of the benchmark, as plain data that survives a round trip through a JSON file.

    run = Run.read("bench.json")
    run.rows[0].results["burnish"].ratio            # eager's time over Burnish's: 2.0 is twice as fast

Everything is in seconds and bytes. A missing measurement is `None`, and `why` gives the reason if there is one; a zero
is a measured zero.
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
    """One contestant and one model in a process of its own, with empty caches or with those that another one filled."""

    process: float
    """From the start of the process to the first result."""
    torch_import: float
    build: float
    """Importing the model's library and building the model."""
    own_import: float
    """The contestant's own imports; not in `first_call`."""
    first_call: float
    """From passing the model to the first result; for whole training steps, to the second."""
    memory_built: int
    """Resident when the model was built, before the contestant was imported."""
    memory_peak: int
    """The peak resident size from start to end, compiling included."""
    memory_steady: int
    """The peak resident size in later calls, after memory freed by compiling was returned to the system."""
    foreign_load: float | None = None
    """The share of all cores that other processes used meanwhile."""


@dataclass
class Result:
    """One contestant on one model."""

    why: str | None = None
    """Why there is no result: the contestant does not support this, or failed."""
    seconds: float | None = None
    """A call in the steady state: the median of the blocks' medians."""
    ratio: float | None = None
    """Eager's time over this one's: the median over the rounds; each round has a block of both."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    """The quartiles of that ratio."""
    blocks: list[float] = field(default_factory=list)
    """The median of each block, by round."""
    first_call: float | None = None
    """Without imports. Measured in a process of its own if there was one, else in the one that all share."""
    cold: Cold | None = None
    warm: Cold | None = None
    """The same with caches that the cold one filled, if that was requested."""
    error: float | None = None
    """The largest difference from float64, relative to the largest value of its tensor."""
    error_ratio: float | None = None
    """That over eager's own; each counts as at least one rounding."""
    why_no_error: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    """What the contestant reports about itself: seconds of its export, warnings."""


@dataclass
class Row:
    """One model in one mode."""

    model: str
    mode: str
    results: dict[str, Result] = field(default_factory=dict)
    breaks: int | None = None
    """Graph breaks of Burnish; None if unknown."""
    graphs: int | None = None
    foreign_load: float | None = None
    """The share of all cores that other processes used while the steady state was measured."""


@dataclass
class Overhead:
    """The cost of a call over eager's, for a function of one operator, stacks of small modules and wide modules."""

    program: str
    modules: int
    """The number of modules; 0 for the function."""
    eager: float
    over: dict[str, float] = field(default_factory=dict)
    """Seconds over eager's by contestant: negative if compiled code is faster."""
    why: dict[str, str] = field(default_factory=dict)
    beyond: dict[str, float] = field(default_factory=dict)
    """Seconds over those of the compiled graph alone, when it is called with its inputs ready."""
    parameters: int = 0
    """The total number of parameters: that of the modules in a stack, where each module has one."""


@dataclass
class Run:
    """All rows of a run, with its machine and settings."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    contestants: list[str]
    rows: list[Row] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)
    format: int = FORMAT

    def write(self, path: str | Path) -> None:
        """Write the file atomically: an interrupted run leaves the last complete state."""
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
            raise ValueError(f"it is not a benchmark of format {FORMAT}")
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
    """Data without infinities: JSON has none, but an error can be infinite."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "infinite"
    return value
