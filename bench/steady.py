"""The steady state: contestants take turns in blocks, so that all of them meet the same machine.

    blocks = take_turns({"eager": f, "burnish": g}, rounds=12, seconds=0.25)
    compare(blocks["eager"], blocks["burnish"])         # (0.97, 1.02, 1.04): quartiles and median of the ratio

What a call takes is for a clock to say (`bench.clocks`): that on the wall, or a GPU's events.

A machine is not the same for long: clocks change, neighbours come and go. Rounds in which everybody has one block, and
ratios taken within a round, cancel what is slower than a round; the median over the rounds drops what is not. In a
block only calls of one contestant run, after a first one that is not counted: it finds the caches full of the others'
weights, and their threads still spinning.
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
    """Who goes when. Everybody leads equally often, and when all have led it goes backwards: nobody always follows the
    same neighbour."""
    for number in range(rounds):
        start = number % len(names)
        order = (*names[start:], *names[:start])
        yield order[::-1] if number // len(names) % 2 else order


def warm_up(call: Call, now: Now = time.perf_counter, least: int = WARM_CALLS) -> int:
    """Call until what measures itself has settled; how often it was called. Compilers may watch their first calls."""
    end, calls = now() + WARM_SECONDS, 0
    while calls < least or now() < end:
        call()
        calls += 1
    return calls


def take_turns(
    calls: Mapping[str, Call],
    rounds: int,
    seconds: float,
    told: Callable[[int], Any] = lambda done: None,
    clock: WallClock | None = None,
) -> dict[str, list[float]]:
    """Seconds of a call, by contestant and round. `told` hears after each round how many are done."""
    clock = clock or WallClock()
    blocks: dict[str, list[float]] = {name: [] for name in calls}
    with frozen_objects():
        for number, order in enumerate(turns(tuple(calls), rounds)):
            for name in order:
                blocks[name].append(block(calls[name], seconds, clock))
            told(number + 1)
    return blocks


@contextlib.contextmanager
def frozen_objects() -> Iterator[None]:
    """What was compiled stays: no collection needs to go through it again. Objects that were frozen
    before stay so."""
    gc.collect()
    is_outermost = gc.get_freeze_count() == 0
    gc.freeze()
    try:
        yield
    finally:
        if is_outermost:
            gc.unfreeze()


def block(call: Call, seconds: float, clock: WallClock) -> float:
    """The median of calls that take so many seconds together, after one that is not counted."""
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
