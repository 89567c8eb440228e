"""The steady state: contestants take turns in blocks, so that all of them see the same machine load.

    blocks = take_turns({"eager": f, "burnish": g}, rounds=12, seconds=0.25)
    compare(blocks["eager"], blocks["burnish"])         # (0.97, 1.02, 1.04): quartiles and median of the ratio

A call is timed by a clock (`bench.clocks`): the wall clock, or a GPU's events.

The speed of a machine varies: frequencies change, other load comes and goes. Every contestant has one block in each
round, and ratios are taken within a round, which cancels changes that are slower than a round; the median over the
rounds discards faster ones. In a block only calls of one contestant run. The first one is not counted: it finds the CPU
caches full of the others' weights, and their threads still spinning.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .clocks import Now, WallClock

Call = Callable[[], Any]

SAMPLES = 3
WARM_CALLS, WARM_SECONDS = 10, 0.5


def turns(names: Sequence[str], rounds: int) -> Iterator[tuple[str, ...]]:
    """The order of contestants in each round. Each comes first equally often. Once all have, the order is reversed, so
    that no contestant always follows the same one."""
    for number in range(rounds):
        start = number % len(names)
        order = (*names[start:], *names[:start])
        yield order[::-1] if number // len(names) % 2 else order


def warm_up(call: Call, now: Now = time.perf_counter, least: int = WARM_CALLS) -> int:
    """Call until self-tuning code has settled: compilers may watch their first calls. Returns the number of calls."""
    end, calls = now() + WARM_SECONDS, 0
    while calls < least or now() < end:
        call()
        calls += 1
    return calls


def take_turns(
    calls: Mapping[str, Call],
    rounds: int,
    seconds: float,
    on_round: Callable[[int], Any] = lambda done: None,
    clock: WallClock | None = None,
) -> dict[str, list[float]]:
    """Seconds per call, by contestant and round. `on_round` is called after each round with the number done."""
    clock = clock or WallClock()
    blocks: dict[str, list[float]] = {name: [] for name in calls}
    with frozen_objects():
        for number, order in enumerate(turns(tuple(calls), rounds)):
            for name in order:
                blocks[name].append(block(calls[name], seconds, clock))
            on_round(number + 1)
    return blocks


@contextlib.contextmanager
def frozen_objects() -> Iterator[None]:
    """Freeze all objects in the block: no garbage collection needs to traverse compiled code again. Objects that were
    frozen before stay frozen."""
    gc.collect()
    is_outermost = gc.get_freeze_count() == 0
    gc.freeze()
    try:
        yield
    finally:
        if is_outermost:
            gc.unfreeze()


def block(call: Call, seconds: float, clock: WallClock) -> float:
    """The median of calls that together take the given time, after one that is not counted."""
    gc.collect()
    call()
    repeat = clock.repeats(clock.sample(call))
    samples: list[float] = []
    end = clock.now() + seconds
    while len(samples) < SAMPLES or clock.now() < end:
        samples.append(clock.sample(call, repeat))
    return statistics.median(samples)


def compare(eager: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile of eager's time over the other's, round by round."""
    ratios = [a / b for a, b in zip(eager, other, strict=True)]
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, middle, high
