"""Memory planning: assigns each buffer an offset in one arena, from its live range.

    spans       a needed in steps 0 and 1, 128 bytes      b in 1 and 2, 512 bytes       c in 2 and 3, 512 bytes
    in order    a at 0, b at 128, c at 640                1152 bytes: the gap that a leaves is too small for c
    by size     b at 0, c at 512, a at 512                1024 bytes: a is free before c starts

Rooms are output buffers that are not written yet:

    room        free up to step 2, 600 bytes
    with it     b at 0 in the room, a at 0, c at 0        512 bytes
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ...tensors.fit_size_formulas import ALIGNMENT

MANY = 500
"""With more spans than this, only `place_by_start` is tried."""

WORTH = 1 << 14
"""Fewest bytes the arena must shrink to use rooms: their addresses change, and are passed to kernels in every call."""

REPAIRS = 12
"""How many times the spans that found no place are placed first in another attempt."""

ATTEMPTS = 5
"""How many arena sizes are tried."""


@dataclass(frozen=True, slots=True)
class Span:
    """A live range, first and last step inclusive, and a size in bytes."""

    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class UnwrittenOutput:
    """The last step at which it is free, and its size in bytes."""

    last: int
    size: int


def assign_offsets(spans: Sequence[Span]) -> tuple[list[int], int]:
    """The offset of each span, and the total size."""
    found = place_by_start(spans)
    return min(found, place_by_size(spans), key=lambda way: way[1]) if len(spans) <= MANY else found


def place_by_start(spans: Sequence[Span]) -> tuple[list[int], int]:
    """Best fit in order of time: each takes the smallest gap that is large enough, or new space at the end."""
    found, total = [0] * len(spans), 0
    gaps = Gaps()
    ends: list[tuple[int, int, int]] = []
    for turn, number in enumerate(sorted(range(len(spans)), key=lambda k: spans[k].first)):
        span = spans[number]
        while ends and ends[0][0] < span.first:
            done = heapq.heappop(ends)[2]
            gaps.free(found[done], spans[done].size)
        at = gaps.take(span.size)
        if at is None:
            at, total = total, total + span.size
        found[number] = at
        heapq.heappush(ends, (span.last, turn, number))
    return found, total


class Gaps:
    """Free ranges, none next to another. Of equal sizes the one that was made first comes first."""

    def __init__(self) -> None:
        self.by_size: list[tuple[int, int, int]] = []
        """Size, number, start; sorted."""
        self.starts: dict[int, tuple[int, int, int]] = {}
        self.ends: dict[int, tuple[int, int, int]] = {}
        self.made = 0

    def take(self, size: int) -> int | None:
        """The start of the smallest that is large enough, which is no longer free up to `size`."""
        at = bisect.bisect_left(self.by_size, (size,))
        if at == len(self.by_size):
            return None
        room, _, start = self.remove(self.by_size[at])
        self.add(start + size, room - size)
        return start

    def free(self, at: int, size: int) -> None:
        """Frees a range, merged with adjacent gaps."""
        before, after = self.ends.get(at), self.starts.get(at + size)
        if before is not None:
            at, size = self.remove(before)[2], size + before[0]
        if after is not None:
            size += self.remove(after)[0]
        self.add(at, size)

    def add(self, at: int, size: int) -> None:
        if size:
            gap = self.starts[at] = self.ends[at + size] = size, self.made, at
            self.made += 1
            bisect.insort(self.by_size, gap)

    def remove(self, gap: tuple[int, int, int]) -> tuple[int, int, int]:
        size, _, at = gap
        del self.by_size[bisect.bisect_left(self.by_size, gap)], self.starts[at], self.ends[at + size]
        return gap


def place_by_size(spans: Sequence[Span]) -> tuple[list[int], int]:
    """Largest first, each at the lowest offset that its overlapping spans allow. Spans at the very end are placed first
    in the next attempt: long live ranges are hard to place late."""
    order, bound = largest_first(spans), peak_memory((), (), spans)
    best = found, total = place_greedily(spans, order)
    for _ in range(min(REPAIRS, MANY * MANY // max(len(spans), 1) ** 2)):
        if best[1] <= bound:
            break
        last = [k for k in order if found[k] + spans[k].size == total]
        order = [*last, *(k for k in order if k not in last)]
        found, total = place_greedily(spans, order)
        best = min(best, (found, total), key=lambda way: way[1])
    return best


def place_greedily(spans: Sequence[Span], order: Sequence[int]) -> tuple[list[int], int]:
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
    """The first gap that is large enough among the placed spans with an overlapping live range."""
    first, last, size, at = span.first, span.last, span.size, 0
    for begin, end in sorted(
        [(begin, begin + other.size) for other, begin in done if other.first <= last and first <= other.last]
    ):
        if begin - at >= size:
            break
        if end > at:
            at = end
    return at


def with_rooms(
    spans: Sequence[Span], rooms: Sequence[UnwrittenOutput], movable: Sequence[bool], beside: Sequence[Span]
) -> tuple[list[int], int, dict[int, int]]:
    """The offset of each span, the total size of those in no room, and the room of each of the others.

    `beside` are the live ranges of other memory. An output that is used as scratch memory is allocated earlier, beside
    more of it: this is done only if the total peak falls.
    """
    starts, total = assign_offsets(spans)
    best = starts, total, dict[int, int]()
    if sum(room.size for room in rooms) < WORTH or len(spans) > MANY:
        return best
    needed = [room.last + 1 for room in rooms]
    least = total + peak_memory(rooms, needed, beside) - WORTH + 1
    others = [span for span, may_move in zip(spans, movable, strict=True) if not may_move]
    low, high = max(memory_lower_bound(spans, rooms, movable), assign_offsets(others)[1]), total
    size = low
    for _ in range(ATTEMPTS):
        if high - low < WORTH:
            break
        found = try_to_fit(size, spans, rooms, movable) or try_to_fit(size, spans, rooms, movable, is_room_first=True)
        if found is None:
            low = size
        else:
            (starts, inside), high = found, size
            early = [
                min([step, *(spans[k].first for k, room in inside.items() if room == number)])
                for number, step in enumerate(needed)
            ]
            together = size + peak_memory(rooms, early, beside)
            if together < least:
                best, least = (starts, size, inside), together
        size = (low + high) // 2 // ALIGNMENT * ALIGNMENT
    return best


def memory_lower_bound(spans: Sequence[Span], rooms: Sequence[UnwrittenOutput], movable: Sequence[bool]) -> int:
    """A lower bound of the memory needed beside the rooms."""
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


def try_to_fit(
    size: int,
    spans: Sequence[Span],
    rooms: Sequence[UnwrittenOutput],
    movable: Sequence[bool],
    is_room_first: bool = False,
) -> tuple[list[int], dict[int, int]] | None:
    """The offset of each span if the spans in no room fit into `size`, and the rooms of the others. A movable span goes
    to a room only where the arena is full, or with `is_room_first` wherever it can: either may succeed."""
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


def peak_memory(rooms: Sequence[UnwrittenOutput], begin: Sequence[int], beside: Sequence[Span]) -> int:
    """The peak of the rooms, each from the given step on, and of other memory."""
    change: dict[int, int] = {}
    for room, step in zip(rooms, begin, strict=True):
        change[step] = change.get(step, 0) + room.size
    for span in beside:
        change[span.first] = change.get(span.first, 0) + span.size
        change[span.last + 1] = change.get(span.last + 1, 0) - span.size
    return max(itertools.accumulate(change[step] for step in sorted(change)), default=0)
