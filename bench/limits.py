"""How close a model's compiled code comes to what this machine can do, and where it is far from that.

    burnish bench --limits bert resnet50 [--dtype bf16] [--threads 2]

Measured first, in the same process: how fast memory is read, copied and added (the larger counts), and the best rate of
a large product, by eager's library and by Burnish's choice. The time at the limit of a kernel or call is its operations
over that rate, or its bytes over that bandwidth, whichever is longer; both are counted from the plan
(`burnish.schedule.plan_costs_for_reports`). Data that stays in a cache can be faster than that. What loses most time
comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

import burnish
from burnish.frontend.compile_callable import original_of
from burnish.frontend.cost_of_call import recorded_calls
from burnish.report.cost_report import plans_that_ran
from burnish.report.profile_segments import seconds_of
from burnish.report.record_run import RunRecorder
from burnish.settings import patch

from .table import Table, as_text
from .workload import Workload

ELEMENTS = 1 << 25
"""Of the arrays whose memory is read and written: larger than any cache here."""
SIDE = 2048
RUNS = 8
SHOWN = 20


@dataclass(frozen=True)
class Limits:
    bandwidths: dict[str, float]
    """Bytes a second."""
    rates: dict[str, float]
    """Operations a second."""

    def seconds(self, operations: int, moved: int) -> float:
        return max(operations / max(self.rates.values()), moved / max(self.bandwidths.values()))


@dataclass(frozen=True)
class Step:
    model: str
    name: str
    line: str
    measured: float
    at_limit: float

    @property
    def lost(self) -> float:
        return self.measured - self.at_limit


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    return min(seconds_of(work) for _ in range(RUNS))


def measure_limits(dtype: torch.dtype) -> Limits:
    a, b, c = (torch.ones(ELEMENTS) for _ in range(3))
    moved = a.element_size() * ELEMENTS
    bandwidths = {
        "read (sum)": moved / best(lambda: a.sum()),
        "copy": 2 * moved / best(lambda: b.copy_(a)),
        "triad": 3 * moved / best(lambda: torch.add(a, b, alpha=2.0, out=c)),
    }
    x, layer = torch.ones(SIDE, SIDE, dtype=dtype), torch.nn.Linear(SIDE, SIDE, bias=False, dtype=dtype)
    with torch.no_grad(), patch(never_slower=False):
        compiled = burnish.compile(layer)
        for _ in range(3):
            compiled(x)
        rates = {
            "eager's product": 2 * SIDE**3 / best(lambda: x @ x),
            "burnish's product": 2 * SIDE**3 / best(lambda: compiled(x)),
        }
    return Limits(bandwidths, rates)


def steps_of(model: str, dtype: str | None, limits: Limits) -> list[Step]:
    """The kernels and calls of a model's inference, which runs a few times; the fastest time of each counts."""
    work = Workload.of(model, "inference", dtype=dtype)
    with torch.no_grad():
        recorded = recorded_calls(original_of(work.fn), RUNS, work.args, work.kwargs)
    return [step for graph in recorded.graphs for step in _of_graph(model, recorded, graph, limits)]


def _of_graph(model: str, recorded: RunRecorder, graph: dict, limits: Limits) -> Iterator[Step]:
    for plan, times in plans_that_ran(recorded, graph):
        for number, step in enumerate(plan["steps"]):
            measured = times.get(number, (0, 0.0, 0.0))[2]
            if measured:
                at_limit = limits.seconds(step["operations"] or 0, step["read"] + step["written"])
                line = next((line for line in step["lines"] if line), "")
                yield Step(model, step["name"], line.strip().rpartition("/")[2], measured, at_limit)


def tables(limits: Limits, steps: dict[str, list[Step]]) -> Iterator[Table]:
    machine = Table("This machine", ["", "measured"])
    machine.rows = [[name, f"{rate / 1e9:.1f} GB/s"] for name, rate in limits.bandwidths.items()]
    machine.rows += [[name, f"{rate / 1e9:.0f} GFLOP/s"] for name, rate in limits.rates.items()]
    yield machine
    models = Table("Kernels and calls of each model", ["model", "measured", "at the limits", "share"])
    for model, found in sorted(steps.items(), key=lambda item: share(item[1])):
        models.rows.append([model, milliseconds(found, "measured"), milliseconds(found, "at_limit"), percent(found)])
    yield models
    farthest = Table("What loses most time", ["model", "step", "line", "measured", "at the limits", "share"])
    for step in sorted(sum(steps.values(), []), key=lambda step: -step.lost)[:SHOWN]:
        times = [milliseconds([step], "measured"), milliseconds([step], "at_limit"), percent([step])]
        farthest.rows.append([step.model, step.name[:40], step.line, *times])
    yield farthest


def share(steps: Sequence[Step]) -> float:
    return sum(step.at_limit for step in steps) / max(sum(step.measured for step in steps), 1e-12)


def percent(steps: Sequence[Step]) -> str:
    return f"{share(steps):.0%}"


def milliseconds(steps: Sequence[Step], which: str) -> str:
    return f"{1e3 * sum(getattr(step, which) for step in steps):.3f} ms"


def show(models: Sequence[str], dtype: str | None, threads: int | None) -> None:
    torch.set_num_threads(threads or torch.get_num_threads())
    limits = measure_limits(getattr(torch, dtype or "float32"))
    found = {model: steps_of(model, dtype, limits) for model in models}
    print("\n\n".join(as_text(table) for table in tables(limits, found)))
