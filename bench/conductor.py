"""Starts the processes of a benchmark, one at a time, and makes rows of their messages.

    conductor = Conductor(plan, progress)
    row = conductor.row("bert")

For each model there is one process for each contestant, from its start to its first result and with empty caches, and
then one in which all of them take turns. If a process fails, dies or hangs, the row says why.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import caches
from .contestants import contestant_of
from .job import TURNS, Job, Message
from .machine import ForeignLoad
from .record import BURNISH, EAGER, Cold, Overhead, Result, Row, result_from

ROOT = Path(__file__).resolve().parents[1]
UNWANTED = ("BURNISH_CHECK", "BURNISH_SHOW", "BURNISH_DUMP")
"""Settings for debugging the compiler. They change and slow down the measured code."""
POLL_SECONDS, LEAVING_SECONDS = 0.2, 10.0
WARNINGS_KEPT = 5


@dataclass
class Plan:
    contestants: list[str]
    mode: str = "inference"
    times: int | None = None
    dropout: bool = True
    device: str = "cpu"
    dtype: str | None = None
    """The dtype of weights and inputs; None leaves them as the model makes them."""
    threads: int | None = None
    rounds: int = 12
    seconds: float = 0.25
    starts: int = 1
    """Processes for each contestant's start; with 0 its first call is timed in the shared process."""
    warm: bool = False
    """As many more, which find the caches that the last of the cold starts filled."""
    limit: float = 1800.0
    """Seconds for which a process may send no message."""


@dataclass
class Outcome:
    """The result of a process, or why it failed."""

    result: Any = None
    why: str | None = None
    contestant: str | None = None
    """The contestant whose turn it was when the process failed."""
    hangs: bool = False
    died: bool = False
    foreign_load: float | None = None
    warnings: list[str] = field(default_factory=list)


Listener = Callable[[Message], Any]


class Conductor:
    def __init__(self, plan: Plan, listener: Listener = lambda message: None):
        self.plan, self.listener = plan, listener

    def row(self, model: str) -> Row:
        with tempfile.TemporaryDirectory(prefix="burnish-bench-", ignore_cleanup_errors=True) as folder:
            results = {name: Result(why=self.why_not(name)) for name in self.plan.contestants}
            for name, result in results.items():
                if result.why is None and self.plan.starts:
                    self.start(model, name, result, Path(folder))
            return self.take_turns(model, results, folder)

    def overheads(self, contestants: list[str]) -> list[Overhead]:
        with tempfile.TemporaryDirectory(prefix="burnish-bench-", ignore_cleanup_errors=True) as folder:
            outcome = self.run(self.job("overhead", contestants, folder))
        if outcome.why is not None:
            raise RuntimeError(f"The overhead could not be measured: {outcome.why}")
        return [Overhead(**found) for found in outcome.result]

    def why_not(self, name: str) -> str | None:
        contestant = contestant_of(name)
        missing = [package for package in contestant.packages if importlib.util.find_spec(package) is None]
        if missing:
            return f"{' and '.join(missing)} not installed: pip install 'burnish[bench]'"
        return contestant.why_not(self.plan.mode)

    def start(self, model: str, name: str, result: Result, folder: Path) -> None:
        """Start a contestant in processes of its own; the one with the median first call counts."""
        # A cold start finds its caches empty. The warm starts and the shared process use those that the last one fills.
        starts = self.plan.starts
        places = [*(folder / str(number) for number in range(starts - 1)), *[folder] * (1 + starts * self.plan.warm)]
        found: list[Cold] = []
        for place in places:
            outcome = self.run(self.job("cold", [name], place, model))
            if outcome.why is not None:
                result.why = outcome.why
                return
            found.append(Cold(**{**outcome.result, "foreign_load": outcome.foreign_load}))
        result.cold, result.warm = middle(found[:starts]), middle(found[starts:])

    def take_turns(self, model: str, results: dict[str, Result], folder: str) -> Row:
        """The row of a model. A contestant that ends the process is left out of the next attempt."""
        while True:
            names = [name for name, result in results.items() if result.why is None]
            if EAGER not in names:
                return Row(model, self.plan.mode, without_eager(results))
            outcome = self.run(self.job("steady", names, folder, model))
            if outcome.why is None:
                break
            results[outcome.contestant or EAGER].why = outcome.why
        data = outcome.result
        row = Row(**{**data, "results": results, "foreign_load": outcome.foreign_load})
        for name, measured in data["results"].items():
            cold = results[name].cold
            results[name] = dataclasses.replace(result_from(measured), cold=cold, warm=results[name].warm)
            if cold is not None:
                results[name].first_call = cold.first_call
        if outcome.warnings and BURNISH in data["results"]:
            results[BURNISH].details["warnings"] = outcome.warnings
        return row

    def job(self, kind: str, contestants: list[str], folder: str | Path, model: str = "") -> Job:
        plan = self.plan
        return Job(
            kind,
            contestants,
            str(folder),
            model=model,
            mode=plan.mode,
            times=plan.times,
            dropout=plan.dropout,
            device=plan.device,
            dtype=plan.dtype,
            threads=plan.threads,
            rounds=plan.rounds,
            seconds=plan.seconds,
        )

    def run(self, job: Job) -> Outcome:
        """Run one process from start to end."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as messages, tempfile.TemporaryFile() as log:
            try:
                job = dataclasses.replace(job, messages=writing, spawned=time.monotonic())
                process = subprocess.Popen(
                    self.command(job),
                    cwd=ROOT,
                    env=environment(job),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[writing],
                    start_new_session=True,
                )
            finally:
                os.close(writing)
            outcome = None
            try:
                outcome = self.listen(process, messages)
            finally:
                end(process, patience=0 if outcome is None or outcome.hangs else LEAVING_SECONDS)
            log.seek(0)
            lines = log.read().decode("utf-8", "replace").splitlines()
        if outcome.died and lines:
            outcome.why = f"{outcome.why}; its last output: {lines[-1].strip()[:200]}"
        outcome.warnings = [line.strip()[:300] for line in lines if "Warning: burnish" in line][:WARNINGS_KEPT]
        return outcome

    def command(self, job: Job) -> list[str]:
        return [sys.executable, "-m", "bench.worker", json.dumps(dataclasses.asdict(job))]

    def listen(self, process: subprocess.Popen, messages: Any) -> Outcome:
        outcome, load, taking_turns = Outcome(), ForeignLoad(process.pid), False
        for message in self.messages(process, messages):
            if message is None:
                outcome.why, outcome.hangs = f"no message for {self.plan.limit:.0f} s", True
                return outcome
            if "failed" in message:
                outcome.why = message["failed"]
                return outcome
            if "result" in message:
                outcome.result = message["result"]
                if outcome.foreign_load is None:
                    outcome.foreign_load = load.share()
                return outcome
            if message:
                # In the process in which all take turns, only that part has to be undisturbed.
                if (message["stage"] == TURNS) != taking_turns:
                    if taking_turns:
                        outcome.foreign_load = load.share()
                    load, taking_turns = ForeignLoad(process.pid), not taking_turns
                outcome.contestant = message.get("contestant")
            self.listener(message)
        status = process.wait()
        ended = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        outcome.why, outcome.died = f"the process ended with {ended}", True
        return outcome

    def messages(self, process: subprocess.Popen, pipe: Any) -> Iterator[Message | None]:
        """Messages of a process as they arrive; an empty one now and then; None after it was silent for too long."""
        rest, heard = b"", time.monotonic()
        while True:
            ready, _, _ = select.select([pipe], [], [], POLL_SECONDS)
            if ready:
                # Children of the process may keep the pipe open after it has ended, so there is no wait for its end.
                part = pipe.read(1 << 16)
                if not part:
                    return
                rest += part
                heard = time.monotonic()
                *whole, rest = rest.split(b"\n")
                yield from map(json.loads, whole)
            elif process.poll() is not None:
                return
            elif time.monotonic() - heard > self.plan.limit:
                yield None
                return
            else:
                yield {}


def middle(starts: list[Cold]) -> Cold | None:
    """The start with the median first call."""
    return sorted(starts, key=lambda start: start.first_call)[len(starts) // 2] if starts else None


def without_eager(results: dict[str, Result]) -> dict[str, Result]:
    """Results that say that without eager there is nothing to compare with."""
    why = f"eager does not run it: {results[EAGER].why}"
    return {
        name: result if result.why is not None else Result(why=why, cold=result.cold)
        for name, result in results.items()
    }


def environment(job: Job) -> dict[str, str]:
    """The caller's environment without settings that slow Burnish down; this checkout comes first, caches are empty."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: text for name, text in os.environ.items() if name not in UNWANTED}
    place = caches.folder_of(job.caches, job.contestants[0] if job.kind == "cold" else BURNISH)
    return {**kept, **caches.variables(place), "PYTHONPATH": os.pathsep.join(paths)}


def end(process: subprocess.Popen, patience: float) -> None:
    """End the process and its children: it leads a session of its own."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
