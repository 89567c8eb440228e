"""CPU time of a model: of the first call, and of launching the work of each later call.

    python -m bench.host bert resnet50 --train --device cuda
    python -m bench.pretend -m bench.host bert --device cuda       without a GPU: kernels take no time

Each contestant has a process of its own for each start, with empty caches. A later call is timed until it returns,
which on a GPU is before the work is done. The minimum of many calls counts, because other load can only add to it. The
last lines are ratios: how many times sooner than torch.compile's the first call ends, and the others' CPU time as a
fraction of eager's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from . import caches, pretend
from .record import BURNISH, EAGER, TORCH_COMPILE
from .table import geomean

CALLS = 60
WARM = 8
"""Calls before the ones that count."""
LIMIT = 900


def measured(model: str, mode: str, name: str, device: str) -> tuple[float, float]:
    """Seconds of the first call, and of a later one until it returns."""
    from .clocks import wait
    from .contestants import contestant_of
    from .workload import Workload

    work = Workload.of(model, mode, device=device)
    with work.grad_mode():
        eager = work.side(contestant_of(EAGER), alone=True)
        for _ in range(2):  # libraries choose their kernels, and the allocator gets its memory
            eager.call_and_wait()
        contestant = contestant_of(name)
        contestant.bring()
        side = work.side(contestant, alone=True)
        side.prepare()
        start = perf_counter()
        side.begin()
        first = perf_counter() - start
        for _ in range(WARM):
            side.call_and_wait()
        least = float("inf")
        for _ in range(CALLS):
            start = perf_counter()
            side.call()
            least = min(least, perf_counter() - start)
            wait(device)
    return first, least


def in_a_process(model: str, mode: str, name: str, device: str) -> tuple[float, float] | str:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.host", model, "--one", name, "--mode", mode, "--device", device]
        env = {**os.environ, **caches.variables(Path(folder))}
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    lines = ran.stdout.splitlines()
    if ran.returncode != 0 or not lines:
        said = [line for line in ran.stderr.splitlines() if line.strip()]
        return next((line for line in reversed(said) if "Error" in line), f"{said[-1:]}, ended with {ran.returncode}")
    return tuple(json.loads(lines[-1]))


def summary_of(model: str, mode: str, found: dict[str, tuple[float, float] | str]) -> str:
    parts = [f"{model:14} {mode:10}"]
    for name, times in found.items():
        parts.append(
            f"{name}: {times}"
            if isinstance(times, str)
            else f"{name} first {times[0]:6.2f} s, later {1e3 * times[1]:6.2f} ms"
        )
    return " | ".join(parts)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m bench.host", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--mode", default="inference", choices=["inference", "train", "train-step"])
    parser.add_argument("--train", dest="mode", action="store_const", const="train")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--against", default=f"{EAGER},{TORCH_COMPILE}")
    parser.add_argument("--starts", type=int, default=1, help="of each; the quickest counts")
    parser.add_argument("--json", type=Path, help="write what was measured")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser


def main() -> None:
    asked = parser().parse_args()
    if asked.one:
        print(json.dumps(measured(asked.models[0], asked.mode, asked.one, asked.device)))
        pretend.leave()
    sooner: list[float] = []
    whole: dict[str, dict] = {}
    parts: dict[str, list[float]] = {}
    for model in asked.models:
        found: dict[str, tuple[float, float] | str] = {}
        for name in [*asked.against.split(","), BURNISH] * asked.starts:
            times, before = in_a_process(model, asked.mode, name, asked.device), found.get(name)
            if isinstance(before, tuple) and isinstance(times, tuple):
                times = min(times[0], before[0]), min(times[1], before[1])
            found[name] = times
        print(summary_of(model, asked.mode, found), flush=True)
        whole[model] = found
        if asked.json:
            asked.json.write_text(json.dumps({"mode": asked.mode, "device": asked.device, "seconds": whole}))
        right = {name: times for name, times in found.items() if isinstance(times, tuple)}
        if BURNISH in right and TORCH_COMPILE in right:
            sooner.append(right[TORCH_COMPILE][0] / right[BURNISH][0])
        for name, times in right.items():
            if EAGER in right and name != EAGER:
                parts.setdefault(name, []).append(times[1] / right[EAGER][1])
    if sooner:
        print(f"first call sooner than {TORCH_COMPILE}'s: {geomean(sooner):.2f} times, least {min(sooner):.2f}")
    for name, ratios in parts.items():
        print(f"{name}'s later calls take {geomean(ratios):.2f} of eager's time on the CPU")


if __name__ == "__main__":
    main()
