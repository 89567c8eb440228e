"""Memory planning: the offset of each buffer in one arena, from the time for which it is needed.

    spans       a needed in steps 0 and 1, 128 bytes      b in 1 and 2, 512 bytes       c in 2 and 3, 512 bytes
    in order    a at 0, b at 128, c at 640                1152 bytes: where a was is too small for c
    by size     b at 0, c at 512, a at 512                1024 bytes: a is done with before c begins

Rooms are memory that is there for something else, which is not written yet:

    room        free up to step 2, 600 bytes
    with it     b at 0 in the room, a at 0, c at 0        512 bytes
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ...tensors.symbolic_sizes import ALIGNMENT

MANY = 500
"""So many spans are not compared with each other."""

WORTH = 1 << 14
"""By so many bytes the memory must shrink for others' memory to be used: what lies elsewhere in every call is told to
the kernels in every call."""

REPAIRS = 12
"""So often what found no place comes first the next time."""

ATTEMPTS = 5
"""With so many sizes it is tried."""


@dataclass(frozen=True, slots=True)
class Span:
    """From which step on, to which, how many bytes."""

    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class Room:
    """To which step it is free, how many bytes."""

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
    """The largest first, each as low as those allow that are needed at the same time. Whoever found no place but at the
    end comes before all others the next time: what is needed for long is hard to place late."""
    order, bound = largest_first(spans), most_of((), (), spans)
    best = found, total = one_by_one(spans, order)
    for _ in range(min(REPAIRS, MANY * MANY // max(len(spans), 1) ** 2)):
        if best[1] <= bound:
            break
        last = [k for k in order if found[k] + spans[k].size == total]
        order = [*last, *(k for k in order if k not in last)]
        found, total = one_by_one(spans, order)
        best = min(best, (found, total), key=lambda way: way[1])
    return best


def one_by_one(spans: Sequence[Span], order: Sequence[int]) -> tuple[list[int], int]:
    found, total = [0] * len(spans), 0
    done: list[tuple[Span, int]] = []
    for number in order:
        span = spans[number]
        at = found[number] = lowest(span, done)
        total = max(total, at + span.size)
        done.append((span, at))
    return found, total


def largest_first(spans: Sequence[Span]) -> list[int]:
    return sorted(range(len(spans)), key=lambda k: -spans[k].size)


def lowest(span: Span, done: Sequence[tuple[Span, int]]) -> int:
    """Where the first gap is that is large enough, among those that are needed at the same time and where they lie."""
    at = 0
    for begin, end in sorted(
        (begin, begin + other.size) for other, begin in done if other.first <= span.last and span.first <= other.last
    ):
        if begin - at >= span.size:
            break
        at = max(at, end)
    return at


def with_rooms(
    spans: Sequence[Span], rooms: Sequence[Room], movable: Sequence[bool], beside: Sequence[Span]
) -> tuple[list[int], int, dict[int, int]]:
    """Where each begins, how much those take together that are in no room, and which rooms the others are in.

    `beside` is what else takes memory. Rooms that are used before their time lie beside that for longer: they are used
    where all of it together is less then.
    """
    starts, total = places(spans)
    best = starts, total, dict[int, int]()
    if sum(room.size for room in rooms) < WORTH or len(spans) > MANY:
        return best
    needed = [room.last + 1 for room in rooms]
    least = total + most_of(rooms, needed, beside) - WORTH + 1
    others = [span for span, may_move in zip(spans, movable, strict=True) if not may_move]
    low, high = max(least_of(spans, rooms, movable), places(others)[1]), total
    size = low
    for _ in range(ATTEMPTS):
        if high - low < WORTH:
            break
        found = within(size, spans, rooms, movable) or within(size, spans, rooms, movable, is_room_first=True)
        if found is None:
            low = size
        else:
            (starts, inside), high = found, size
            early = [
                min([step, *(spans[k].first for k, room in inside.items() if room == number)])
                for number, step in enumerate(needed)
            ]
            together = size + most_of(rooms, early, beside)
            if together < least:
                best, least = (starts, size, inside), together
        size = (low + high) // 2 // ALIGNMENT * ALIGNMENT
    return best


def least_of(spans: Sequence[Span], rooms: Sequence[Room], movable: Sequence[bool]) -> int:
    """So much is needed at least beside the rooms."""
    change: dict[int, list[int]] = {0: [0, 0, sum(room.size for room in rooms)]}
    for span, may_move in zip(spans, movable, strict=True):
        change.setdefault(span.first, [0, 0, 0])[may_move] += span.size
        change.setdefault(span.last + 1, [0, 0, 0])[may_move] -= span.size
    for room in rooms:
        change.setdefault(room.last + 1, [0, 0, 0])[2] -= room.size
    fixed = moving = free = least = 0
    for step in sorted(change):
        fixed, moving, free = (a + b for a, b in zip((fixed, moving, free), change[step], strict=True))
        least = max(least, fixed + max(moving - free, 0))
    return least


def within(
    size: int, spans: Sequence[Span], rooms: Sequence[Room], movable: Sequence[bool], is_room_first: bool = False
) -> tuple[list[int], dict[int, int]] | None:
    """Where each begins, where those that are in no room take no more than a size; and the rooms of the others. What
    may move does where there is no more place for it, or wherever it can: now one turns out, now the other."""
    starts, inside = [0] * len(spans), dict[int, int]()
    done: list[tuple[Span, int]] = []
    taken: list[list[tuple[Span, int]]] = [[] for _ in rooms]
    smallest_first = sorted(range(len(rooms)), key=lambda k: rooms[k].size)
    allowed = [
        [k for k in smallest_first if movable[number] and span.last <= rooms[k].last]
        for number, span in enumerate(spans)
    ]
    for number in sorted(range(len(spans)), key=lambda k: (-spans[k].size, len(allowed[k]))):
        span = spans[number]
        choices = [(k, taken[k], rooms[k].size) for k in allowed[number]]
        choices.insert(len(choices) if is_room_first else 0, (None, done, size))
        for k, others, most in choices:
            at = lowest(span, others)
            if at + span.size <= most:
                starts[number] = at
                others.append((span, at))
                if k is not None:
                    inside[number] = k
                break
        else:
            return None
    return starts, inside


def most_of(rooms: Sequence[Room], begin: Sequence[int], beside: Sequence[Span]) -> int:
    """The most that rooms take together, each from a step on, and what is beside them."""
    change: dict[int, int] = {}
    for room, step in zip(rooms, begin, strict=True):
        change[step] = change.get(step, 0) + room.size
    for span in beside:
        change[span.first] = change.get(span.first, 0) + span.size
        change[span.last + 1] = change.get(span.last + 1, 0) - span.size
    return max(itertools.accumulate(change[step] for step in sorted(change)), default=0)
