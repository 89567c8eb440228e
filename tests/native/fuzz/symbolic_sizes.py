"""Random graphs at several input sizes: ``python -m tests.native.fuzz.symbolic_sizes --graphs 2000 --seed 0``.

One size of a random program's inputs is chosen, and the program is called with that size, then with others. In every
other program the same number among its lines becomes that size too:

    x0 = given((6, 4), ...)                x0 = given((n, 4), ...)        n = 6, 7, 9, 17, 6
    def f(x0):                             def f(x0):
        return x0.reshape(2, 6, 2)             return x0.reshape(2, x0.shape[0], 2)

Compiled code must refuse what eager refuses, and compute what eager computes.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

os.environ.setdefault("BURNISH_ON_ERROR", "raise")

import torch
from bench.operators import observe_call

import burnish
from burnish import events
from burnish.settings import patch

from .check import Failure, silence, why_different
from .generate import generate
from .program import Program

STEPS = (lambda n: n, lambda n: n + 1, lambda n: n + 3, lambda n: 2 * n + 5, lambda n: n, lambda n: max(n - 1, 2))
INDEX = "out of bounds|out of range|smaller than num_classes"
"""Errors of values that may be missing: unused values are not computed."""

SMALLEST = 3
"""Smaller numbers stand for dimensions in the lines, as often as for sizes."""


def variants(program: Program, seed: int) -> Iterator[Program]:
    """The program with one of its sizes changed."""
    places = [(k, dim) for k, x in enumerate(program.inputs) for dim, n in enumerate(x.shape) if n >= SMALLEST]
    if not places:
        return
    k, dim = places[seed % len(places)]
    size = program.inputs[k].shape[dim]
    if seed % 2:
        name = f"x{k}.shape[{dim}]"
        program = replace(
            program,
            lines=tuple(
                replace(
                    line,
                    text=re.sub(rf"(?<![\w.-]){size}(?![\w.])", name, line.text),
                    uses=tuple({*line.uses, f"x{k}"}),
                )
                for line in program.lines
            ),
        )
    for step in STEPS:
        other = step(size)
        yield replace(
            program,
            inputs=tuple(replace(x, shape=tuple(other if n == size else n for n in x.shape)) for x in program.inputs),
        )


def check(program: Program, seed: int) -> tuple[Failure | None, str]:
    """The failure, if any, and how far the program came."""
    words: list[str] = []
    end = events.subscribe(lambda event: words.append(event.data["text"]) if event.kind == "guards.sizes" else None)
    burnish.reset()
    way = "no size"
    try:
        with torch.no_grad(), patch(never_slower=False, on_error="raise", eager_random=True):
            compiled = None
            for changed in variants(program, seed):
                fn = changed.function()
                if compiled is None:
                    compiled, way = burnish.compile(fn, backend="burnish"), "refused by eager"
                inputs = changed.arguments(), {}
                want = observe_call(fn, inputs)
                if want.error is not None:
                    if observe_call(compiled, inputs).error is None and not re.search(INDEX, str(want.error)):
                        return Failure("not refused", f"eager refuses: {want.error}"), way
                    continue
                for call in ("first", "second"):
                    failure = why_different(changed, want, observe_call(compiled, inputs), 0)
                    if failure is not None:
                        return Failure(
                            failure.kind,
                            f"{call} call, {[x.shape for x in changed.inputs]}: {failure.message}\n{words}\n{changed}",
                        ), way
                way = "open" if any(w.startswith("compiled for all") for w in words) else "for each size"
    finally:
        end()
    return None, way


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", type=int, default=8, help="stop after so many failures")
    settings = parser.parse_args()
    silence()
    torch.set_num_threads(1)
    ways: collections.Counter[str] = collections.Counter()
    failures = 0
    start = time.monotonic()
    for seed in range(settings.seed, settings.seed + settings.graphs):
        failure, way = check(generate(seed), seed)
        ways[way] += 1
        if failure is not None:
            failures += 1
            print(f"{'=' * 100}\n--seed {seed}: {failure.kind}\n{failure.message}", flush=True)
            if failures >= settings.kinds:
                break
    counts = ", ".join(f"{count} {way}" for way, count in ways.most_common())
    print(f"{sum(ways.values())} graphs in {time.monotonic() - start:.0f} s: {failures} differ from eager; {counts}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
