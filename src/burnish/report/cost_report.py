"""The costs of a call, by module: what ``burnish.cost(fn)(*args)`` returns.

    Net: 1.10 MFLOP, 2.3 MB moved, 0.48 operations a byte; peak memory 1.4 MB, 0.9 MB of it weights
    estimated 0.35 ms, measured 0.41 ms

    module        operations     share     bytes  op/byte  estimated  measured
    Net                1.10 M     100%    2.3 MB     0.48    0.35 ms   0.41 ms
      layers.0         0.52 M      47%    1.1 MB     …
      (no module)      …

A kernel that is fused from several modules counts for the module of its first operation. The estimate is the time in
which this machine could compute the operations, or move the bytes, whichever takes longer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from .html_report import estimated, machine_limits, times_of_steps
from .profile_segments import size
from .record_run import RunRecorder, machine
from .rich_output import table_between_lines
from .text_layout import count, duration, preformatted, table_lines


@dataclass
class ModuleCost:
    """A module, the modules inside it, and what all of them cost together. Times are in seconds."""

    name: str
    operations: int = 0
    bytes: int = 0
    estimated: float | None = 0.0
    """None on a GPU, whose limits are not measured."""
    measured: float = 0.0
    """In kernels and library calls; the fastest of the calls."""
    inside: list[ModuleCost] = field(default_factory=list)

    def add(self, step: dict[str, Any], estimate: float | None, measured: float) -> None:
        self.operations += step["operations"] or 0
        self.bytes += step["read"] + step["written"]
        self.estimated = None if estimate is None or self.estimated is None else self.estimated + estimate
        self.measured += measured

    def child(self, name: str) -> ModuleCost:
        found = next((one for one in self.inside if one.name == name), None)
        if found is None:
            found = ModuleCost(name)
            self.inside.append(found)
        return found

    def rows(self, depth: int = 0) -> Iterator[tuple[int, ModuleCost]]:
        yield depth, self
        for one in self.inside:
            yield from one.rows(depth + 1)

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.bytes if self.bytes else 0.0


@dataclass(repr=False)
class Cost:
    """What a call costs. `not_counted` are the operators whose operations are not known."""

    whole: ModuleCost
    weights: int
    """Bytes of parameters and buffers that are read."""
    peak_memory: int
    """Bytes of weights, inputs, outputs, and intermediate values, of the graph that needs most."""
    graphs: int
    breaks: int
    not_counted: list[str]

    @property
    def operations(self) -> int:
        return self.whole.operations

    @property
    def bytes(self) -> int:
        return self.whole.bytes

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def __rich__(self) -> Any:
        return table_between_lines(self.lines_above(), self.rows(), self.lines_below())

    def __repr__(self) -> str:
        """Also what a prompt shows."""
        below = self.lines_below()
        return "\n".join([*self.lines_above(), "", *table_lines(self.rows()), *([""] if below else []), *below])

    def lines_above(self) -> list[str]:
        whole = self.whole
        head = (
            f"{whole.name}: {operations(whole.operations)} operations, {size(whole.bytes)} moved, "
            f"{whole.intensity:.2g} operations a byte; peak memory {size(self.peak_memory)}, "
            f"{size(self.weights)} of it weights"
        )
        times = [f"measured {duration(whole.measured)}"]
        if whole.estimated is not None:
            times.insert(0, f"at this machine's limits {duration(whole.estimated)}")
        return [head, ", ".join(times)]

    def rows(self) -> list[tuple[str, ...]]:
        """Of the table: a title, and a line for each module."""
        whole = self.whole
        rows = [("module", "operations", "share", "bytes", "op/byte", "estimated", "measured")]
        for depth, one in whole.rows():
            share = f"{100 * one.operations / whole.operations:.0f}%" if whole.operations else ""
            estimate = "" if one.estimated is None else duration(one.estimated)
            rows.append(
                ("  " * depth + one.name, operations(one.operations), share, size(one.bytes), f"{one.intensity:.2g}",
                 estimate, duration(one.measured))
            )  # fmt: skip
        return rows

    def lines_below(self) -> list[str]:
        more = [f"Not counted: operations of {', '.join(self.not_counted)}."] if self.not_counted else []
        if self.breaks:
            more.append(f"{count(self.breaks, 'graph break')}: what runs between the graphs is not counted.")
        return more


def cost_of_run(run: RunRecorder, name: str) -> Cost:
    """The costs of all graphs that were compiled in a run of one function."""
    limits = None if machine()["gpu"] is not None else machine_limits()
    whole, missing = ModuleCost(name), []
    plans = [found for graph in run.graphs for found in plans_that_ran(run, graph)]
    for plan, times in plans:
        for number, step in enumerate(plan["steps"]):
            if step["operations"] is None:
                missing.append(step["name"])
            costs = step, estimated(step, limits), times.get(number, (0, 0.0, 0.0))[2]
            at = whole
            at.add(*costs)
            for part in modules_of(step) or ([OUTSIDE] if any(modules_of(s) for s in plan["steps"]) else []):
                at = at.child(part)
                at.add(*costs)
    return Cost(
        whole,
        max((graph["weights"] for graph in run.graphs), default=0),
        max((plan["peak"] for plan, _ in plans), default=0),
        len(run.graphs),
        len(run.breaks),
        sorted(set(missing)),
    )


def plans_that_ran(run: RunRecorder, graph: dict[str, Any]) -> list[tuple[dict[str, Any], dict[int, Any]]]:
    """With the times of their steps. A backward that the function does not call is none of its costs."""
    measured = [] if graph["segment"] is None else run.segments[graph["segment"]]["measured"]
    plans = [(plan, times_of_steps(plan, measured)) for plan in graph["plans"]]
    return [found for found in plans if found[1]] or plans


OUTSIDE = "(no module)"


def modules_of(step: dict[str, Any]) -> list[str]:
    """The modules around a step, from the outermost one: each as its path inside the one before."""
    found: list[str] = []
    before = ""
    for path in map(plain_path, step["modules"]):
        if path:
            found.append(path.removeprefix(f"{before}."))
            before = path
    return found


def plain_path(path: str) -> str:
    """`layers.0` of `L['self'].layers.0`."""
    return re.sub(r"^[LG]\[.*?\]\.?", "", path)


def operations(number: float) -> str:
    for unit in ("", " k", " M", " G"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} T"
