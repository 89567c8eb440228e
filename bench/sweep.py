"""Every operator that torch has samples for, distributed over processes: `bench.operators` for a machine with a GPU.

    python -m bench.sweep --device cuda --dtype float32,bfloat16 --processes 12 --samples 3 --minutes 8 --json out.json

A process gets one operator at a time and returns its outcome. If a process dies or stays silent for too long, only its
current operator counts as crashed, and a new process continues with the next one. The same applies to a process whose
GPU refuses everything after an error of a kernel. Operators that the time limit does not reach are listed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 180.0
"""For imports, including torch's samples."""
DYING_SECONDS = 3.0
TAIL = 400


def serve(device: str, samples: int | None, messages: Any) -> None:
    """A worker: reads operators by number and dtype, writes their outcomes."""
    import torch

    from .job import one_line
    from .operators import Outcome, check_operator, full_name, is_cpu, operators, quiet, takes

    if not is_cpu(device):
        torch.cuda.init()
    chosen = operators(device)
    dtypes = ("float32", "bfloat16", "float16", "float64", "int64", "bool")
    print(
        json.dumps(
            [[full_name(op), [name for name in dtypes if takes(op, getattr(torch, name), device)]] for op in chosen]
        ),
        file=messages,
        flush=True,
    )
    with quiet():
        for line in sys.stdin:
            number, name = line.split()
            op = chosen[int(number)]
            try:
                outcome = check_operator(op, samples, "burnish", getattr(torch, name), device)
            except Exception as error:  # raised by samples that cannot be made here
                outcome = Outcome(f"{full_name(op)} {name}", "crashed", f"its samples: {one_line(error)}")
            record = {
                **dataclasses.asdict(outcome),
                "way": outcome.way,
                "ways": sorted(outcome.ways),
                "refusals": sorted(outcome.refusals),
            }
            if outcome.verdict == "crashed" and not is_cpu(device):
                try:
                    torch.cuda.synchronize()
                except RuntimeError as error:
                    record["detail"] += f" (the GPU refuses everything since: {str(error).splitlines()[0]})"
                    record["leaves"] = True
            print(json.dumps(record), file=messages, flush=True)


class Worker:
    """A process that checks operators, with its output."""

    def __init__(self, device: str, samples: int | None):
        reading, writing = os.pipe()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the process may write
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bench.sweep",
                    "--worker",
                    str(writing),
                    "--device",
                    device,
                    *(["--samples", str(samples)] if samples else []),
                ],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=self.log,
                stderr=self.log,
                pass_fds=[writing],
                text=True,
            )
        finally:
            os.close(writing)
        self.pipe, self.rest = reading, b""

    def ask(self, text: str) -> None:
        """Send a line. If the process has died, `hear` notices."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{text}\n")
            self.process.stdin.flush()

    def hear(self, seconds: float) -> Any:
        """The next message; None if the process has died or was silent for so long."""
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.pipe], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self.pipe, 1 << 20) if ready else b""
            if not part:
                return None
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def why(self) -> str:
        """What happened to a process that does not respond, with its last line of output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(DYING_SECONDS)
        status = self.process.poll()
        self.log.seek(0)
        last = self.log.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        how = "it was silent for too long" if status is None else f"its process ended with status {status}"
        return ": ".join([how, *last])[:TAIL]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self.pipe)
        self.log.close()


class Sweep:
    def __init__(
        self,
        device: str,
        dtypes: Sequence[str],
        samples: int | None,
        processes: int,
        seconds: float,
        patience: float,
        only: str = "",
    ):
        self.device, self.samples, self.processes = device, samples, processes
        self.dtypes, self.only, self.patience = dtypes, only, patience
        self.end = time.monotonic() + seconds
        self.outcomes: list[dict[str, Any]] = []
        self.failures: list[str] = []
        """Why a process could not start."""
        self.left: collections.deque[tuple[int, str, str]] = collections.deque()
        self.lock = threading.Lock()
        self.is_listed = False

    def run(self) -> None:
        threads = [threading.Thread(target=self.work) for _ in range(self.processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def seconds_left(self) -> float:
        return max(0.0, self.end - time.monotonic())

    def work(self) -> None:
        """Run one process at a time, as long as operators are left."""
        worker = None
        try:
            while self.seconds_left():
                if worker is None:
                    worker = self.start()
                    if worker is None:
                        return
                try:
                    number, name, dtype = self.left.popleft()
                except IndexError:
                    return
                worker.ask(f"{number} {dtype}")
                record = worker.hear(min(self.patience, self.seconds_left()))
                if record is None and not self.seconds_left():
                    self.left.append((number, name, dtype))
                    return
                if record is None:
                    record = {
                        "name": f"{name} {dtype}",
                        "verdict": "crashed",
                        "detail": worker.why(),
                        "breaks": [],
                        "samples": 0,
                        "way": "",
                        "ways": [],
                        "refusals": [],
                        "leaves": True,
                    }
                self.outcomes.append(record)
                if record.pop("leaves", False):
                    worker.end()
                    worker = None
        finally:
            if worker is not None:
                worker.end()

    def start(self) -> Worker | None:
        """A new worker; None if it could not start, with the reason in `failures`."""
        worker = Worker(self.device, self.samples)
        names = worker.hear(min(START_SECONDS, self.seconds_left()))
        if names is None:
            self.failures.append(worker.why())
            worker.end()
            return None
        with self.lock:
            if not self.is_listed:
                self.is_listed = True
                self.left.extend(
                    (number, name, dtype)
                    for dtype in self.dtypes
                    for number, (name, able) in enumerate(names)
                    if dtype in able and self.only in name
                )
        return worker

    def data(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "dtypes": list(self.dtypes),
            "samples_each": self.samples,
            "not_reached": [f"{name} {dtype}" for _, name, dtype in self.left],
            "failures": self.failures,
            "outcomes": sorted(self.outcomes, key=lambda record: record["name"]),
        }


def report(data: dict[str, Any]) -> str:
    lines = []
    for record in data["outcomes"]:
        if record["verdict"] in ("different", "crashed"):
            lines.append(f"{record['verdict']:10} {record['name']}: {record['detail']}")
    for dtype in data["dtypes"]:
        found = [record for record in data["outcomes"] if record["name"].endswith(f" {dtype}")]
        verdicts = collections.Counter(record["verdict"] for record in found)
        ways = collections.Counter(record["way"] for record in found if record["samples"])
        lines.append(
            f"{dtype}: {len(found)} operators, {sum(record['samples'] for record in found)} samples: "
            + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            + "; ran "
            + ", ".join(f"{count} {way}" for way, count in ways.most_common())
        )
    if data["not_reached"]:
        lines.append(f"not reached: {len(data['not_reached'])}, from {data['not_reached'][0]} on")
    lines += [f"a process could not start: {why}" for why in data["failures"]]
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.sweep", description=__doc__.splitlines()[0])
    made.add_argument("--device", default="cpu")
    made.add_argument("--dtype", default="float32,bfloat16")
    made.add_argument("--only", default="", metavar="NAME", help="operators whose name contains this")
    made.add_argument("--samples", type=int, help="at most so many of each")
    made.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) * 3 // 4))
    made.add_argument("--minutes", type=float, default=60.0)
    made.add_argument("--patience", type=float, default=90.0, help="seconds that one operator may take")
    made.add_argument("--json", type=Path)
    made.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.worker is not None:
        with os.fdopen(options.worker, "w") as messages:
            serve(options.device, options.samples, messages)
        return 0
    sweep = Sweep(
        options.device,
        options.dtype.split(","),
        options.samples,
        options.processes,
        options.minutes * 60,
        options.patience,
        options.only,
    )
    sweep.run()
    data = sweep.data()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    print(report(data))
    wrong = [record for record in sweep.outcomes if record["verdict"] in ("different", "crashed")]
    return int(bool(wrong or sweep.failures and not sweep.outcomes))


if __name__ == "__main__":
    sys.exit(main())
