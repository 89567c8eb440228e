"""Arena planning: live values never overlap, and little memory is wasted."""

import random

from burnish.schedule.memory import plan_arena
from burnish.schedule.memory.plan_arena import (
    WORTH,
    Gaps,
    Span,
    UnwrittenOutput,
    assign_offsets,
    largest_first,
    memory_lower_bound,
    place_by_size,
    place_by_start,
    place_greedily,
    with_rooms,
)


def overlapping(spans, found):
    return [
        (a, b)
        for a in range(len(spans))
        for b in range(a)
        if spans[a].first <= spans[b].last
        and spans[b].first <= spans[a].last
        and found[a] < found[b] + spans[b].size
        and found[b] < found[a] + spans[a].size
    ]


def drawn(seed):
    chance = random.Random(seed)
    firsts = sorted(chance.randrange(30) for _ in range(40))
    return [Span(first, first + chance.randrange(8), 64 * chance.randrange(1, 40)) for first in firsts]


def most_at_once(spans):
    return max(sum(s.size for s in spans if s.first <= step <= s.last) for step in range(40))


def test_live_values_do_not_overlap():
    for seed in range(100):
        spans = drawn(seed)
        for way in (place_by_start, place_by_size, assign_offsets):
            found, total = way(spans)
            assert not overlapping(spans, found)
            assert total == max(at + span.size for at, span in zip(found, spans, strict=True))
            assert total >= most_at_once(spans)


def test_a_gap_that_is_too_small_for_later_buffers_is_not_lost():
    spans = [Span(0, 1, 128), Span(1, 2, 512), Span(2, 3, 512)]
    assert place_by_start(spans)[1] == 1152
    assert assign_offsets(spans)[1] == 1024 == most_at_once(spans)


def test_freed_ranges_join_and_the_first_made_of_equal_gaps_is_taken():
    gaps = Gaps()
    for at, size in ((256, 64), (0, 64), (512, 128), (64, 64), (128, 0)):
        gaps.free(at, size)
    assert [gap[::2] for gap in gaps.by_size] == [(64, 256), (128, 512), (128, 0)]
    assert [gaps.take(size) for size in (128, 96, 64, 64, 0)] == [512, 0, 256, None, 96]
    gaps.free(0, 96)
    assert [gap[::2] for gap in gaps.by_size] == [(128, 0)]


def test_the_better_of_both_ways_is_taken():
    both = [
        (place_by_start(spans)[1], place_by_size(spans)[1], assign_offsets(spans)[1])
        for spans in map(drawn, range(100))
    ]
    assert all(found == min(first, second) for first, second, found in both)
    assert len({first < second for first, second, _ in both}) == 2


def test_long_lived_values_are_placed_before_larger_ones():
    """Placed after the two large ones, which overlap in time, it would be placed behind the small one, too."""
    spans = [Span(0, 5, 640), Span(1, 1, 768), Span(4, 6, 1280), Span(6, 7, 1344)]
    assert place_greedily(spans, largest_first(spans))[1] > most_at_once(spans) == 2624
    assert place_by_size(spans)[1] == 2624


def test_of_very_many_only_one_way_is_tried(monkeypatch):
    monkeypatch.setattr(plan_arena, "MANY", 2)
    assert assign_offsets([Span(0, 1, 128), Span(1, 2, 512), Span(2, 3, 512)])[1] == 1152


SIZE = 4 * WORTH


def of_size(*steps):
    return [Span(first, last, SIZE) for first, last in steps]


def test_values_use_output_buffers_that_are_written_later():
    chain = of_size((0, 1), (1, 2), (2, 3))
    assert with_rooms(chain, [UnwrittenOutput(2, SIZE)], [True] * 3, []) == ([0, 0, 0], SIZE, {1: 0})


def test_nothing_is_moved_where_it_is_needed_longer_or_is_larger_or_may_not_move():
    chain = of_size((0, 1), (1, 2), (2, 3))
    for room, movable in (
        (UnwrittenOutput(0, SIZE), True),
        (UnwrittenOutput(2, SIZE - 64), True),
        (UnwrittenOutput(2, SIZE), False),
    ):
        assert with_rooms(chain, [room], [movable] * 3, []) == (*assign_offsets(chain), {})


def test_a_room_is_not_used_before_its_time_where_that_takes_as_much():
    chain, room = of_size((0, 1), (1, 2), (2, 3)), UnwrittenOutput(2, SIZE)
    with_much_at_first = [Span(0, 2, SIZE)]
    assert with_rooms(chain, [room], [True] * 3, with_much_at_first) == (*assign_offsets(chain), {})
    with_much_at_last = [Span(3, 3, SIZE)]
    assert with_rooms(chain, [room], [True] * 3, with_much_at_last)[1] == SIZE


def test_rooms_hold_nothing_that_overlaps_or_stays_too_long():
    moved = 0
    for seed in range(100):
        chance = random.Random(seed)
        spans = [Span(s.first, s.last, s.size * 64) for s in drawn(seed)]
        rooms = [UnwrittenOutput(chance.randrange(10, 40), chance.randrange(6000) * 64) for _ in range(4)]
        movable = [chance.random() < 0.8 for _ in spans]
        starts, total, inside = with_rooms(spans, rooms, movable, [])
        for where in (None, *range(len(rooms))):
            here = [k for k in range(len(spans)) if inside.get(k) == where]
            assert not overlapping([spans[k] for k in here], [starts[k] for k in here])
            assert all(starts[k] + spans[k].size <= (total if where is None else rooms[where].size) for k in here)
        assert all(movable[k] and spans[k].last <= rooms[room].last for k, room in inside.items())
        assert memory_lower_bound(spans, rooms, movable) <= total <= assign_offsets(spans)[1] - WORTH * bool(inside)
        moved += bool(inside)
    assert moved > 50, moved
