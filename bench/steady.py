"""The steady state: contestants take turns in blocks, so that all of them meet the same machine.

    blocks = take_turns({"eager": f, "burnish": g}, rounds=12, seconds=0.25)
    compare(blocks["eager"], blocks["burnish"])         # (0.97, 1.02, 1.04): quartiles and median of the ratio

A machine is not the same for long: clocks change, neighbours come and go. Rounds in which everybody has one block, and
ratios taken within a round, cancel what is slower than a round; the median over the rounds drops what is not. In a
block only calls of one contestant run, after a first one that is not counted: it finds the caches full of the others'
weights, and their threads still spinning.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Call = Callable[[], Any]
Clock = Callable[[], float]

SAMPLE_SECONDS = 2e-4
"""Shorter calls are timed several at a time, for the clock itself takes part of a microsecond."""
SAMPLES = 3
WARM_CALLS, WARM_SECONDS = 10, 0.5


def turns(names: Sequence[str], rounds: int) -> Iterator[tuple[str, ...]]:
    """Who goes when. Everybody leads equally often, and when all have led it goes backwards: nobody always follows the
    same neighbour."""
    for number in range(rounds):
        start = number % len(names)
        order = (*names[start:], *names[:start])
        yield order[::-1] if number // len(names) % 2 else order


def warm_up(call: Call, clock: Clock = time.perf_counter, least: int = WARM_CALLS) -> int:
    """Call until what measures itself has settled; how often it was called. Compilers may watch their first calls."""
    end, calls = clock() + WARM_SECONDS, 0
    while calls < least or clock() < end:
        call()
        calls += 1
    return calls


def take_turns(calls: Mapping[str, Call], rounds: int, seconds: float, told: Callable[[int], Any] = lambda done: None,
               clock: Clock = time.perf_counter) -> dict[str, list[float]]:
    """Seconds of a call, by contestant and round. `told` hears after each round how many are done."""
    blocks: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.freeze()  # what was compiled stays: going through it again in every collection is nobody's time
    try:
        for number, order in enumerate(turns(tuple(calls), rounds)):
            for name in order:
                blocks[name].append(block(calls[name], seconds, clock))
            told(number + 1)
    finally:
        gc.unfreeze()
    return blocks


def block(call: Call, seconds: float, clock: Clock = time.perf_counter) -> float:
    """The median of calls that take so many seconds together, after one that is not counted."""
    gc.collect()
    call()
    begun = clock()
    call()
    repeat = max(1, round(SAMPLE_SECONDS / max(clock() - begun, 1e-9)))
    samples: list[float] = []
    end = clock() + seconds
    while len(samples) < SAMPLES or clock() < end:
        begun = clock()
        for _ in range(repeat):
            call()  # the result is dropped, so that every call finds the same memory free
        samples.append((clock() - begun) / repeat)
    return statistics.median(samples)


def compare(eager: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile of eager's time over the other's, round by round."""
    ratios = [a / b for a, b in zip(eager, other, strict=True)]
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, middle, high
