"""Places in the arena: nothing that is needed at the same time overlaps, and little is wasted."""

import random

from burnish.schedule import arena
from burnish.schedule.arena import Span, by_size, in_order, places


def overlapping(spans, found):
    return [(a, b) for a in range(len(spans)) for b in range(a)
            if spans[a].first <= spans[b].last and spans[b].first <= spans[a].last
            and found[a] < found[b] + spans[b].size and found[b] < found[a] + spans[a].size]


def drawn(seed):
    chance = random.Random(seed)
    firsts = sorted(chance.randrange(30) for _ in range(40))
    return [Span(first, first + chance.randrange(8), 64 * chance.randrange(1, 40)) for first in firsts]


def most_at_once(spans):
    return max(sum(s.size for s in spans if s.first <= step <= s.last) for step in range(40))


def test_what_is_needed_at_the_same_time_does_not_overlap():
    for seed in range(100):
        spans = drawn(seed)
        for way in (in_order, by_size, places):
            found, total = way(spans)
            assert not overlapping(spans, found)
            assert total == max(at + span.size for at, span in zip(found, spans, strict=True))
            assert total >= most_at_once(spans)


def test_a_gap_that_is_too_small_for_what_follows_is_not_lost():
    spans = [Span(0, 1, 128), Span(1, 2, 512), Span(2, 3, 512)]
    assert in_order(spans)[1] == 1152
    assert places(spans)[1] == 1024 == most_at_once(spans)


def test_the_better_of_both_ways_is_taken():
    both = [(in_order(spans)[1], by_size(spans)[1], places(spans)[1]) for spans in map(drawn, range(100))]
    assert all(found == min(first, second) for first, second, found in both)
    assert len({first < second for first, second, _ in both}) == 2


def test_of_very_many_only_one_way_is_tried(monkeypatch):
    monkeypatch.setattr(arena, "MANY", 2)
    assert places([Span(0, 1, 128), Span(1, 2, 512), Span(2, 3, 512)])[1] == 1152
