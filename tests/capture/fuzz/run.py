"""The long fuzz run: ``python -m tests.capture.fuzz.run --programs 2000 --seed 0``.

Program number ``i`` depends on ``seed + i`` alone, so ``--programs 1 --seed N`` repeats a failing one. Failures are
grouped by what differs; the smallest program of each group is printed, and written to ``--save`` when given.
"""

from __future__ import annotations

import argparse
import ast
import collections
import faulthandler
import os
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("BURNISH_ON_ERROR", "raise")

import torch

from .check import Failure, check
from .generate import generate
from .prelude import PRELUDE
from .random_choices import from_seed
from .shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--groups", type=int, default=10, help="stop after this many different failures")
    parser.add_argument("--shrink-seconds", type=float, default=30.0)
    parser.add_argument("--save", type=Path, help="a folder for the failing programs")
    parser.add_argument("--show", action="store_true", help="print every program")
    settings = parser.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", SyntaxWarning)
    groups: dict[str, list[tuple[int, str, Failure]]] = {}
    errors: collections.Counter[str] = collections.Counter()
    start, quiet, done = time.monotonic(), 0, 0
    for i in range(settings.programs):
        source = generate(from_seed(settings.seed + i))
        if settings.show:
            print(own_part(source))
        failure, met = check(source)
        done += 1
        quiet += not met
        errors.update(met)
        if failure is not None:
            groups.setdefault(failure.signature, []).append((settings.seed + i, source, failure))
            if len(groups) >= settings.groups:
                break
        if sys.stderr.isatty():
            print(f"\r{done} programs, {len(groups)} failures", end="", file=sys.stderr)
    for signature, cases in groups.items():
        report(signature, cases, settings)
    common = ", ".join(f"{name} {count}" for name, count in errors.most_common(6))
    print(
        f"{done} programs in {time.monotonic() - start:.0f} s: {sum(map(len, groups.values()))} differ from eager in "
        f"{len(groups)} ways; {quiet} end without an exception ({common})"
    )
    return 1 if groups else 0


def report(signature: str, cases: list[tuple[int, str, Failure]], settings: argparse.Namespace) -> None:
    seed, source, failure = min(cases, key=lambda case: len(case[1]))
    small = shrink(source, failure, settings.shrink_seconds)
    again = check(small)[0] or failure
    print(
        f"{'=' * 100}\n{len(cases)} programs, the first ones from --seed {', '.join(str(s) for s, *_ in cases[:5])}: "
        f"{signature}\n{'-' * 100}\n{own_part(small)}{'-' * 100}\n{again.message}\n"
    )
    if settings.save:
        settings.save.mkdir(parents=True, exist_ok=True)
        (settings.save / f"{seed}.py").write_text(small)


def own_part(source: str) -> str:
    """The program without the prelude's lines."""
    known = {ast.unparse(node) for node in ast.parse(PRELUDE).body}
    nodes = [node for node in ast.parse(source).body if ast.unparse(node) not in known]
    return "\n\n".join(ast.unparse(node) for node in nodes) + "\n"


if __name__ == "__main__":
    sys.exit(main())
