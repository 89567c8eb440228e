"""The most memory that intermediate values take in one call, compiled and in eager.

    python -m bench.intermediates                 all models
    python -m bench.intermediates resnet50 bert

What torch's allocator gives out and takes back while a warm call runs is added up, the same way for both; compiled code
holds its arena besides, which is there from the first call on. Results count, weights do not, packed or not: those are
`bench.memory`'s. The last line is the greatest ratio.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

import burnish
from burnish import events
from burnish.settings import patch

from .models import MODELS

WARM = 3
"""Calls before the one that is looked at: nothing is measured or packed any more."""


def peak_of(call: Callable[[], object]) -> int:
    """Of what is allocated while it runs, in bytes."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    now = most = 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def peaks(name: str) -> tuple[int, int, int]:
    """Eager's, the compiled one's, and what of that is the arena."""
    fn, args, kwargs = MODELS[name]()
    arenas: list[int] = []
    burnish.reset()
    with torch.no_grad(), patch(never_slower=False, on_error="raise", cache=False):
        stop = events.subscribe(lambda event: event.kind == "loops" and arenas.append(event.data["plan"].arena))
        try:
            compiled = burnish.compile(fn)
            for _ in range(WARM):
                fn(*args, **kwargs)
                compiled(*args, **kwargs)
        finally:
            stop()
        arena = sum(arenas)
        return peak_of(lambda: fn(*args, **kwargs)), arena + peak_of(lambda: compiled(*args, **kwargs)), arena


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all, if none is named")
    settings = parser.parse_args()
    greatest = 0.0
    print(f"{'model':18}{'eager':>12}{'burnish':>12}{'of it arena':>14}{'ratio':>8}")
    for name in settings.models or MODELS:
        eager, ours, arena = peaks(name)
        ratio = ours / max(eager, 1)
        greatest = max(greatest, ratio)
        print(f"{name:18}{eager / 1e6:9.2f} MB{ours / 1e6:9.2f} MB{arena / 1e6:11.2f} MB{ratio:8.2f}", flush=True)
    print(f"greatest ratio {greatest:.2f}")
    return 0 if greatest <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
