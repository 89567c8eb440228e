"""The long fuzz run: ``python -m tests.native.fuzz.run --graphs 5000 --seed 0``.

Graph number ``i`` depends on ``seed + i`` alone, so ``--graphs 1 --seed N`` repeats a failing one. Failures are grouped
by what differs; the smallest program of each group is printed.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import os
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
    found: dict[str, list[tuple[int, Program, Failure]]] = {}
    ways: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for seed in range(settings.seed, settings.seed + settings.graphs):
        program = generate(seed)
        if settings.show:
            print(f"# {seed}\n{program}", flush=True)
        verdict = check(program)
        ways[verdict.way] += 1
        if verdict.failure is not None:
            found.setdefault(verdict.failure.kind, []).append((seed, program, verdict.failure))
            if len(found) >= settings.kinds:
                break
        if sys.stderr.isatty():
            print(f"\r{sum(ways.values())} graphs, {len(found)} failures", end="", file=sys.stderr)
    for kind, cases in found.items():
        report(kind, cases, settings.shrink_seconds)
    counts = ", ".join(f"{count} {way}" for way, count in ways.most_common())
    differ = sum(map(len, found.values()))
    seconds = time.monotonic() - start
    print(f"{sum(ways.values())} graphs in {seconds:.0f} s: {differ} differ from eager in {len(found)} ways; {counts}")
    return 1 if found else 0


def report(kind: str, cases: list[tuple[int, Program, Failure]], seconds: float) -> None:
    seed, program, failure = min(cases, key=lambda case: len(case[1].lines))
    small = shrink(program, kind, seconds)
    again = check(small).failure or failure
    seeds = ", ".join(str(seed) for seed, *_ in cases[:8])
    print(f"{'=' * 100}\n{len(cases)} graphs, from --seed {seeds}: {kind}\n{'-' * 100}\n{small}{'-' * 100}\n"
          f"{again.message}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
