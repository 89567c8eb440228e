"""Everything there is to measure on a machine with a GPU, in parts of a few minutes each.

    python -m bench.gpu                                  all parts, within half an hour
    python -m bench.gpu --part sweep --part bandwidth    some of them
    python -m bench.gpu --part steady --minutes 8        one of them, for as long as it takes
    python -m bench.gpu --rehearse                       every part in small, on a CPU

Results go into $OUT, or where `--out` says: a JSON file for each command, `gpu.log` with all that was said, and
`summary.json`. A part that fails or runs out of its minutes says so and keeps what it has; the others go on. Runs of
`bench` are read again, and drawn, by `python -m bench --read steady.json --plot steady.svg`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .apart import ROOT, paths
from .machine import describe

SHOWN_LINES = 60
LEAVING_SECONDS = 12.0
REHEARSAL_MINUTES = 20.0
"""Of a part on a CPU, whose pace is no matter: a busy machine takes a while for compilers alone."""
STOPPED, MISSING = "stopped", "missing"


@dataclass(frozen=True)
class Part:
    name: str
    minutes: float
    needs: str
    """What has to be installed besides Burnish and torch, by the names one imports."""
    commands: tuple[str, ...]
    """Arguments of Python. `{json}` is the file of the part's name and, from the second on, of the command's number."""
    rehearsal: tuple[str, ...]


BENCH = "-m bench --device cuda --steady-only --rounds 6 --json {json}"
SMALL = "-m bench mlp --against eager --rounds 1 --seconds 0.01 --json {json}"

PARTS = (
    Part(
        "tests",
        2.5,
        "pytest xdist",
        ("-m pytest tests/gpu -q -n 8 --dist loadfile -p no:cacheprovider",),
        ("-m pytest tests/gpu/test_null_device_dry_run.py -q -p no:cacheprovider",),
    ),
    Part(
        "sweep",
        4.0,
        "expecttest scipy triton",
        ("-m bench.sweep --device cuda --dtype float32,bfloat16 --samples 3 --minutes {minutes} --json {json}",),
        ("-m bench.sweep --dtype float32 --only softmax --samples 1 --processes 1 --json {json}",),
    ),
    # A process for each, with all modes taking turns in it.
    Part(
        "steady",
        5.0,
        "transformers torchvision triton",
        (
            f"{BENCH} llama_1b --dtype bf16 --modes default,reduce-overhead",
            f"{BENCH} gpt2 resnet50 bert vit_b --modes default,reduce-overhead",
        ),
        (f"{SMALL} --steady-only", f"{SMALL} --steady-only --dtype bf16"),
    ),
    Part(
        "tutorials",
        5.5,
        "lightning torchvision triton",
        ("-m bench.tutorials --device cuda --limit 150 --json {json}",),
        ("-m bench.tutorials --small --only inference --against eager --between 0 --json {json}",),
    ),
    Part(
        "bandwidth",
        1.5,
        "triton",
        ("-m bench.bandwidth --device cuda --torch-compile --json {json}",),
        ("-m bench.bandwidth --elements 40960 --dtype f32 --json {json}",),
    ),
    Part(
        "cold",
        2.0,
        "transformers torchvision triton",
        ("-m bench.host bert llama resnet50 --against torch.compile --device cuda --json {json}",),
        ("-m bench.host mlp --against eager --json {json}",),
    ),
    Part(
        "generation",
        2.5,
        "transformers triton",
        (
            "-m bench.static_cache --device cuda --dtype bf16 --model llama_1b --modes reduce-overhead --limit 120 "
            "--json {json}",
        ),
        ("-m bench.static_cache --model tiny --tokens 2 --against eager --json {json}",),
    ),
    Part(
        "large",
        2.0,
        "transformers torchvision triton",
        (f"{BENCH} gpt2_1024 resnet50 vit_b bert_512 --batch 16 --dtype bf16 --modes default",),
        (f"{SMALL} --steady-only --batch 2",),
    ),
    Part(
        "train",
        1.5,
        "transformers torchvision triton",
        (f"{BENCH} gpt2 resnet50 --train-step --batch 8 --no-dropout --modes default",),
        (f"{SMALL} --steady-only --train-step",),
    ),
    Part(
        "autotune",
        1.5,
        "transformers torchvision triton",
        (f"{BENCH} gpt2 resnet50 --modes max-autotune",),
        (f"{SMALL} --steady-only",),
    ),
)


@dataclass
class Done:
    part: str
    command: str
    status: int | str
    """Of the process; or why it has none."""
    seconds: float = 0.0
    json: str | None = None
    last: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return self.status == 0


class Driver:
    def __init__(self, out: Path, is_rehearsal: bool = False, machine: dict[str, Any] | None = None):
        self.out, self.is_rehearsal, self.machine = out, is_rehearsal, machine
        self.done: list[Done] = []
        out.mkdir(parents=True, exist_ok=True)

    def run(self, parts: Sequence[Part], minutes: float | None = None) -> None:
        """`minutes`: for each part, in place of its own."""
        for part in parts:
            missing = [name for name in part.needs.split() if importlib.util.find_spec(name) is None]
            if missing and not self.is_rehearsal:
                self.note(Done(part.name, "", f"{MISSING}: pip install {' '.join(missing)}"))
                continue
            usual = REHEARSAL_MINUTES if self.is_rehearsal else part.minutes
            end = time.monotonic() + 60 * (minutes or usual)
            for number, text in enumerate(part.rehearsal if self.is_rehearsal else part.commands):
                place = self.out / f"{part.name}{f'-{number + 1}' if number else ''}.json"
                self.note(self.command(part.name, text, place, end))

    def command(self, part: str, text: str, place: Path, end: float) -> Done:
        left = end - time.monotonic()
        if left <= 0:
            return Done(part, text, f"{STOPPED}: the part's minutes were over before it began")
        # What ends itself in time has its report; a quarter of a minute is for that.
        known = {"json": place, "minutes": f"{max(left - 15, 5) / 60:.3f}"}
        words = [word.format(**known) for word in shlex.split(text)]
        place.unlink(missing_ok=True)  # what an earlier run left is not this one's
        begun = time.monotonic()
        with open(self.out / "gpu.log", "a+b") as log:
            log.write(f"\n\n$ python {shlex.join(words)}\n".encode())
            log.flush()
            start = log.tell()
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": paths(), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
            status: int | str
            try:
                status = process.wait(left)
            except subprocess.TimeoutExpired:
                status = f"{STOPPED}: the part's minutes were over"
            finally:
                stop(process)
            log.seek(start)
            lines = log.read().decode("utf-8", "replace").rstrip().splitlines()
        return Done(
            part,
            shlex.join(words),
            status,
            round(time.monotonic() - begun, 1),
            place.name if place.exists() else None,
            tuple(lines[-SHOWN_LINES:]),
        )

    def note(self, done: Done) -> None:
        self.done.append(done)
        print(f"\n== {done.part}: {done.command}", *done.last, as_line(done), sep="\n", flush=True)
        data = {"machine": self.machine, "commands": [asdict(each) for each in self.done]}
        (self.out / "summary.json").write_text(json.dumps(data, indent=1) + "\n")


def as_line(done: Done) -> str:
    how = done.status if isinstance(done.status, str) else "good" if done.is_good else f"status {done.status}"
    return f"-- {done.part}: {how}, {done.seconds:.0f} s"


def stop(process: subprocess.Popen) -> None:
    """Asked first, so that it can write what it has and end those it started; then not asked any more."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(LEAVING_SECONDS)
            except subprocess.TimeoutExpired:
                continue
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nobody is left of its family
    process.wait()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__.splitlines()[0])
    made.add_argument(
        "--part",
        action="append",
        choices=[part.name for part in PARTS],
        help="may be repeated (default: all, in this order)",
    )
    made.add_argument("--minutes", type=float, help="for each part, in place of its own")
    made.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "bench" / "out" / "gpu"))
    made.add_argument("--rehearse", action="store_true", help="in small and on the CPU: whether everything is in place")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    machine = describe()
    if machine["gpu"] is None and not options.rehearse:
        print("torch sees no GPU here. `--rehearse` runs every part in small, on the CPU.", file=sys.stderr)
        return 2
    driver = Driver(options.out.absolute(), options.rehearse, machine)
    driver.run([part for part in PARTS if not options.part or part.name in options.part], options.minutes)
    print("", *map(as_line, driver.done), sep="\n")
    return int(not all(done.is_good for done in driver.done))


if __name__ == "__main__":
    sys.exit(main())
