"""Turns, blocks and ratios, which make two times comparable."""

import pytest
from bench.clocks import WallClock
from bench.steady import block, compare, take_turns, turns, warm_up


class Clock:
    """Time passes only where a call says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def call(self, *durations, log=None, name=None):
        """A call that takes so long: the last duration for good."""
        left = list(durations)

        def run():
            self.now += left.pop(0) if len(left) > 1 else left[0]
            if log is not None:
                log.append(name)

        return run


def test_everybody_has_one_block_a_round_and_leads_equally_often():
    orders = list(turns(("a", "b", "c"), 6))
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    leaders = [order[0] for order in orders]
    assert {name: leaders.count(name) for name in "abc"} == {"a": 2, "b": 2, "c": 2}


def test_no_contestant_always_follows_the_same_one():
    orders = list(turns(("a", "b", "c"), 6))
    followers = {order[order.index("a") + 1] for order in orders if order[-1] != "a"}
    assert followers == {"b", "c"}


def test_blocks_of_two_alternate():
    clock, log = Clock(), []
    calls = {name: clock.call(0.25, log=log, name=name) for name in ("eager", "other")}
    rounds_done = []
    blocks = take_turns(calls, rounds=4, seconds=1.0, on_round=rounds_done.append, clock=WallClock(clock))
    order = [name for i, name in enumerate(log) if i == 0 or log[i - 1] != name]
    # Four rounds: eager other, other eager, other eager, eager other. Blocks of one side by side count once here.
    assert order == ["eager", "other", "eager", "other", "eager", "other"]
    assert {name: len(times) for name, times in blocks.items()} == {"eager": 4, "other": 4}
    assert rounds_done == [1, 2, 3, 4]


def test_block_does_not_count_its_first_call():
    clock = Clock()
    assert block(clock.call(100.0, 1.0), seconds=10.0, clock=WallClock(clock)) == 1.0


def test_block_is_the_median_of_its_calls():
    clock = Clock()
    durations = [1.0, 1.0, 2.0, 50.0, 2.0, 1.0, 2.0]
    assert block(clock.call(*durations), seconds=55.0, clock=WallClock(clock)) == 2.0


def test_block_has_three_samples_however_slow_the_call():
    clock, log = Clock(), []
    block(clock.call(60.0, log=log), seconds=0.1, clock=WallClock(clock))
    assert len(log) == 2 + 3  # one that is not counted, one that determines how many a sample needs


def test_short_calls_are_timed_together():
    clock = Clock()
    calls = []
    run = clock.call(1e-6, log=calls)
    readings = []

    def read():
        readings.append(len(calls))
        return clock.now

    assert block(run, seconds=1e-3, clock=WallClock(read)) == pytest.approx(1e-6)
    samples = [b - a for a, b in zip(readings, readings[1:], strict=False) if b - a > 1]
    assert samples and all(count == 200 for count in samples)


def test_warming_up_takes_ten_calls_and_half_a_second():
    clock = Clock()
    assert warm_up(clock.call(10.0), clock) == 10
    assert warm_up(clock.call(0.01), clock) >= 50


def test_ratio_is_taken_within_rounds():
    # The machine is twice as slow in the second half: ratios do not see it, ratios of medians would.
    eager = [1.0, 1.0, 2.0, 2.0]
    other = [0.5, 0.5, 1.0, 1.0]
    assert compare(eager, other) == (2.0, 2.0, 2.0)


def test_one_disturbed_round_does_not_move_the_ratio():
    low, middle, high = compare([1.0, 1.0, 1.0, 9.0, 1.0], [0.5] * 5)
    assert middle == 2.0 and low == 2.0 and high == 2.0


def test_single_round_is_its_own_spread():
    assert compare([3.0], [2.0]) == (1.5, 1.5, 1.5)
