"""Where in one piece of memory values lie that are needed for a while.

    spans       a needed in steps 0 and 1, 128 bytes      b in 1 and 2, 512 bytes       c in 2 and 3, 512 bytes
    in order    a at 0, b at 128, c at 640                1152 bytes: where a was is too small for c
    by size     b at 0, c at 512, a at 512                1024 bytes: a is done with before c begins
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MANY = 500
"""So many spans are not compared with each other."""


@dataclass(frozen=True, slots=True)
class Span:
    """From which step on, to which, how many bytes."""

    first: int
    last: int
    size: int


def places(spans: Sequence[Span]) -> tuple[list[int], int]:
    """Where each begins, and how much it takes together."""
    found = in_order(spans)
    return min(found, by_size(spans), key=lambda way: way[1]) if len(spans) <= MANY else found


def in_order(spans: Sequence[Span]) -> tuple[list[int], int]:
    """As they are made: each takes the smallest gap that is large enough, or new space at the end."""
    found, total = [0] * len(spans), 0
    free: list[tuple[int, int]] = []
    ends: dict[int, list[int]] = {}
    at = 0
    for number in sorted(range(len(spans)), key=lambda k: spans[k].first):
        for step in sorted(step for step in ends if step < spans[number].first):
            for done in ends.pop(step):
                give(free, found[done], spans[done].size)
        size = spans[number].size
        best = min((gap for gap in free if gap[1] >= size), key=lambda gap: gap[1], default=None)
        if best is None:
            at, total = total, total + size
        else:
            free.remove(best)
            at = best[0]
            if best[1] > size:
                free.append((at + size, best[1] - size))
        found[number] = at
        ends.setdefault(spans[number].last, []).append(number)
    return found, total


def give(free: list[tuple[int, int]], at: int, size: int) -> None:
    """Put a range back, joined with the gaps beside it."""
    for gap in list(free):
        if gap[0] + gap[1] == at:
            free.remove(gap)
            at, size = gap[0], size + gap[1]
        elif at + size == gap[0]:
            free.remove(gap)
            size += gap[1]
    if size:
        free.append((at, size))


def by_size(spans: Sequence[Span]) -> tuple[list[int], int]:
    """The largest first, each as low as those allow that are needed at the same time."""
    found, total = [0] * len(spans), 0
    done: list[int] = []
    for number in sorted(range(len(spans)), key=lambda k: -spans[k].size):
        mine, at = spans[number], 0
        for begin, end in sorted((found[k], found[k] + spans[k].size) for k in done
                                 if spans[k].first <= mine.last and mine.first <= spans[k].last):
            if begin - at >= mine.size:
                break
            at = max(at, end)
        found[number], total = at, max(total, at + mine.size)
        done.append(number)
    return found, total
