"""The long fuzz run: ``python -m tests.native.fuzz.run --graphs 5000 --seed 0``.

Graph number ``i`` depends on ``seed + i`` alone, so ``--graphs 1 --seed N`` repeats a failing one. Failures are grouped
by what differs and by what the smallest program that shows it calls; that program is printed.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import faulthandler
import os
import re
import sys
import time

os.environ.setdefault("BURNISH_ON_ERROR", "raise")

import torch

from .check import Failure, check, silence
from .generate import generate
from .program import Program
from .shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", type=int, default=12, help="stop after so many different failures")
    parser.add_argument("--shrink-seconds", type=float, default=20.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print every program")
    settings = parser.parse_args()
    faulthandler.enable()
    silence()
    torch.set_num_threads(settings.threads)
    found: dict[str, Finding] = {}
    ways: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for seed in range(settings.seed, settings.seed + settings.graphs):
        program = generate(seed)
        if settings.show:
            print(f"# {seed}\n{program}", flush=True)
        verdict = check(program)
        ways[verdict.way] += 1
        if verdict.failure is not None:
            made = smallest(seed, program, verdict.failure, settings.shrink_seconds)
            known = found.setdefault(made.name, made)
            known.seeds.append(seed)
            if len(str(made.program)) < len(str(known.program)):
                known.program, known.failure = made.program, made.failure
            if len(found) >= settings.kinds:
                break
        if sys.stderr.isatty():
            print(f"\r{sum(ways.values())} graphs, {len(found)} failures", end="", file=sys.stderr)
    for finding in found.values():
        print(finding, flush=True)
    counts = ", ".join(f"{count} {way}" for way, count in ways.most_common())
    differ = sum(len(finding.seeds) for finding in found.values())
    seconds = time.monotonic() - start
    print(f"{sum(ways.values())} graphs in {seconds:.0f} s: {differ} differ from eager in {len(found)} ways; {counts}")
    return 1 if found else 0


@dataclasses.dataclass
class Finding:
    """A failure, the smallest program that shows it, and the seeds that led to it."""

    name: str
    program: Program
    failure: Failure
    seeds: list[int]

    def __str__(self) -> str:
        seeds = ", ".join(map(str, self.seeds[:8]))
        return (
            f"{'=' * 100}\n{len(self.seeds)} graphs, from --seed {seeds}: {self.name}\n{'-' * 100}\n{self.program}"
            f"{'-' * 100}\n{self.failure.message}\n"
        )


def smallest(seed: int, program: Program, failure: Failure, seconds: float) -> Finding:
    """Failures of one kind whose smallest programs call the same functions count as one."""
    small = shrink(program, failure.kind, seconds)
    called = sorted(set(re.findall(r"[\w.]+(?=\()", " ".join(line.text for line in small.lines))))
    names = [name.rpartition(".")[2] for name in called]
    return Finding(f"{failure.kind} ({' '.join(names)})", small, check(small).failure or failure, [])


if __name__ == "__main__":
    sys.exit(main())
