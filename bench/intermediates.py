"""Peak memory of the intermediate values of one call, compiled and in eager.

    python -m bench.intermediates                 all models
    python -m bench.intermediates resnet50 bert
    python -m bench.intermediates --train bert    forward and backward: gradients are results
    python -m bench.intermediates --train-step bert

The allocations and frees of torch's allocator during a warm call are added up, in the same way for both. Compiled code
also holds its arena from the first call on. Results count; weights, packed or not, do not: `bench.memory` counts those.
Each model has a process of its own, because memory left by an earlier one may be freed while a later one is measured.
The last line summarizes the ratios.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from torch.profiler import ProfilerActivity, profile, record_function

import burnish
from burnish.runtime.program import unbound_driver
from burnish.settings import patch

from .contestants import contestant_of
from .models import MODELS
from .workload import Workload

FRAMES = unbound_driver.__name__
"""The module that defines the classes of frames."""

WARM = 3
"""Calls before the measured one, after which nothing is timed or packed any more."""


def peak_of(call: Callable[[], object]) -> int:
    """The peak in bytes of memory allocated during the call, with what the previous call left. That call is profiled
    too: for older memory, torch's profiler may or may not report the free, and neither is counted."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
        with record_function(MARK):
            call()
    most, held, live, is_second = 0, 0, {}, False
    for event in sorted(
        with_descendants(seen.profiler.kineto_results.experimental_event_tree()), key=lambda e: e.start_time_ns
    ):
        if event.name == MARK:
            is_second = True
        elif event.name == "[memory]":
            size = event.extra_fields.alloc_size
            held -= live.pop(event.extra_fields.ptr, 0)
            if size > 0:
                held += size
                live[event.extra_fields.ptr] = size
        most = max(most, held) if is_second else 0
    assert is_second
    return most


def with_descendants(events: list) -> Iterator:
    """The events and all their descendants."""
    for event in events:
        yield event
        yield from with_descendants(event.children)


MARK = "the measured call"


def peaks(name: str, mode: str) -> tuple[int, int, int]:
    """The peaks of eager and of compiled code, and the arena's part of the latter."""
    work = Workload.of(name, mode)
    burnish.reset()
    with work.grad_mode(), patch(never_slower=False, on_error="raise", cache=False):
        sides = [work.side(contestant_of(contestant), alone=mode == "inference") for contestant in ("eager", "burnish")]
        for side in sides:
            side.prepare()
            for _ in range(WARM):
                side.call()
        eager, ours = (peak_of(side.call) for side in sides)
        return eager, held_in_arenas() + ours, held_in_arenas()


def held_in_arenas() -> int:
    """Bytes in the arenas of all live programs. Forward and backward share one."""
    gc.collect()
    frames = [
        thing
        for thing in gc.get_objects()
        if type(thing).__module__ == FRAMES and isinstance(getattr(thing, "arena", None), torch.Tensor)
    ]  # the arena of a draft is a number of bytes, not a tensor
    return sum({frame.arena.data_ptr(): frame.arena.numel() for frame in frames}.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all, if none is named")
    modes = parser.add_mutually_exclusive_group()
    for mode in ("train", "train-step"):
        modes.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, default="inference")
    settings = parser.parse_args()
    ratios = []
    print(f"{'model':18}{'eager':>12}{'burnish':>12}{'of it arena':>14}{'ratio':>8}")
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        for name in settings.models or MODELS:
            eager, ours, arena = processes.submit(peaks, name, settings.mode).result()
            ratio = ours / max(eager, 1)
            ratios.append(ratio)
            print(f"{name:18}{eager / 1e6:9.2f} MB{ours / 1e6:9.2f} MB{arena / 1e6:11.2f} MB{ratio:8.2f}", flush=True)
    print(f"geomean {statistics.geometric_mean(ratios):.2f}, greatest {max(ratios):.2f}")
    return 0 if max(ratios) <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
