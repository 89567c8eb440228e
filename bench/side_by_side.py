"""All contestants on one model in one process: prepared one after the other, settled, then timed in turns.

    row = SideBySide(job, tell).row()

Any contestant but eager may fail: the row then has the reason, and the contestant takes no further part.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from typing import Any

import torch

from . import caches, fallbacks
from .accuracy import DRAWS, error_ratio, relative_error, typical_error
from .clocks import WallClock, clock_for, wait
from .contestants import Contestant, contestant_of
from .job import TURNS, Job, Tell, one_line
from .record import BURNISH, EAGER, Result, Row
from .steady import compare, take_turns, warm_up
from .workload import Side, Tensors, Workload

EVENTS_KEPT = 10


class SideBySide:
    def __init__(self, job: Job, tell: Tell, clock: WallClock | None = None):
        self.job, self.tell = job, tell
        self.clock = clock or clock_for(job.device)
        self.results = {name: Result() for name in job.contestants}
        self.sides: dict[str, Side] = {}
        self.errors: dict[str, list[float]] = {}
        tell({"stage": "builds the model"})
        self.work = Workload.of(job.model, job.mode, job.times, job.dropout, job.device, job.dtype)
        self.truth: Tensors | None = None

    def row(self) -> Row:
        row = Row(self.job.model, self.job.mode, self.results)
        with self.work.grad_mode():
            self.tell({"stage": "computes in float64"})
            self.truth, why_no_truth = self.work.truth()
            for name in self.results:
                self.prepare(name)
            if EAGER not in self.sides:
                raise RuntimeError(f"eager itself does not run it: {self.results[EAGER].why}")
            self.time()
            self.tell({"stage": "compares with float64"})
            for name in self.sides:
                self.note_error(name)  # the settled code may differ from that of the first call
            if self.truth is not None and self.work.jumps(self.truth):
                self.draw_errors()
            self.judge(why_no_truth)
            if BURNISH in self.sides:
                self.tell({"stage": "counts breaks"})
                try:
                    row.breaks, row.graphs = self.work.explain()
                except Exception as error:
                    self.results[BURNISH].details["why_no_breaks"] = one_line(error)
        return row

    def prepare(self, name: str) -> None:
        """Pass the model to the contestant, time the first call, and let it settle."""
        contestant, result = contestant_of(name), self.results[name]
        result.why = contestant.why_not(self.job.mode)
        if result.why is not None:
            return
        self.tell({"stage": "compiles", "contestant": name})
        try:
            os.environ.update(caches.variables(caches.folder_of(self.job.caches, name)))
            contestant.bring()
            side = self.work.side(contestant)
            with fallbacks.refused() if name.startswith(BURNISH) else contextlib.nullcontext():
                begun = time.perf_counter()
                side.prepare()
                side.begin()
                result.first_call = time.perf_counter() - begun
                self.sides[name] = side
                self.note_error(name)
                self.tell({"stage": "settles", "contestant": name})
                result.details = {**contestant.details, **settle(side)}
        except Exception as error:
            self.sides.pop(name, None)
            result.why = one_line(error)
            # After an illegal address a GPU refuses everything. This call then fails, and the others get a process
            # without this contestant.
            wait(self.job.device)

    def time(self) -> None:
        def tell_round(done: int) -> None:
            self.tell({"stage": TURNS, "round": done, "rounds": self.job.rounds})

        tell_round(0)
        calls = {name: side.call if self.clock.waits else side.call_and_wait for name, side in self.sides.items()}
        blocks = take_turns(calls, self.job.rounds, self.job.seconds, tell_round, self.clock)
        for name, times in blocks.items():
            result = self.results[name]
            result.blocks, result.seconds = times, statistics.median(times)
            result.ratio_low, result.ratio, result.ratio_high = compare(blocks[EAGER], times)

    def note_error(self, name: str) -> None:
        if self.truth is not None:
            side = self.sides[name]
            got = in_order(side.contestant, side.results(), self.truth)
            self.errors.setdefault(name, []).append(relative_error(self.truth, got))

    def draw_errors(self) -> None:
        """Errors over several inputs. A single one shows whether an activation changed its sign, and little else."""
        self.errors = {name: [] for name in self.sides}
        for steps in range(DRAWS):
            work = self.work.shifted(7 * steps)
            truth = work.in_double().side(Contestant(EAGER), alone=True).results()
            for name, side in self.sides.items():
                side.args, side.kwargs = work.args, work.kwargs
                got = in_order(side.contestant, side.results(), truth)
                self.errors[name].append(typical_error(truth, got))
        self.errors = {name: [statistics.fmean(x * x for x in errors) ** 0.5] for name, errors in self.errors.items()}

    def judge(self, why_no_truth: str | None) -> None:
        dtype = getattr(torch, self.job.dtype or "float32")
        for name in self.sides:
            result = self.results[name]
            result.why_no_error = why_no_truth
            if self.truth is not None:
                result.error = max(self.errors[name])
                result.error_ratio = error_ratio(result.error, max(self.errors[EAGER]), dtype)


def settle(side: Side) -> dict[str, Any]:
    """Warm up; returns the calls made and Burnish's events meanwhile: code dropped in favour of eager, fallbacks."""
    if side.contestant.kind != BURNISH:
        return {"warm_calls": warm_up(side.call_and_wait)}
    from burnish import events
    from burnish.runtime.contest.inference_contest import LARGE_ORDER

    texts: list[str] = []
    stop = events.subscribe(lambda event: texts.append(f"{event.kind}: {event.data.get('text', '')}"[:300]))
    try:
        calls = warm_up(side.call_and_wait, least=len(LARGE_ORDER) + 1)  # some of them are eager's
    finally:
        stop()
    return {"warm_calls": calls, "events": list(dict.fromkeys(texts))[:EVENTS_KEPT]}


def in_order(contestant: Contestant, results: Tensors, truth: Tensors) -> Tensors:
    """A flat list of results under the names of the model's own results, if their number is the same."""
    if not contestant.returns_flat or len(results) != len(truth):
        return results
    return dict(zip(truth, results.values(), strict=True))
