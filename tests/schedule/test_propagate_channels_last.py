"""Channels-last propagation: connected convolutions get layouts together, at the least total time."""

import itertools
import random

import pytest

from burnish.schedule.layouts.propagate_channels_last import (
    CONTIGUOUS,
    LAST,
    Link,
    SecondsByLayout,
    choose_layouts,
    total,
)


def chain(*times, copy, source=CONTIGUOUS):
    links = [Link(k - 1 if k else source, k, copy) for k in range(len(times))]
    return choose_layouts([SecondsByLayout(*both) for both in times], links)


def test_layout_not_worth_a_copy_for_one_is_worth_one_for_all():
    assert chain((1.0, 0.9), copy=0.15) == [False]
    assert chain((1.0, 0.9), (1.0, 0.9), (1.0, 0.9), copy=0.15) == [True] * 3


def test_one_that_is_slower_so_is_taken_along_or_left_out():
    assert chain((2.0, 1.0), (1.0, 1.1), (2.0, 1.0), copy=0.2) == [True] * 3
    assert chain((2.0, 1.0), (1.0, 9.0), (2.0, 1.0), copy=0.2) == [True, False, True]


def test_inputs_keep_their_layout():
    assert chain((1.0, 1.1), copy=0.2, source=LAST) == [True]
    assert chain((1.0, 1.1), copy=0.2, source=CONTIGUOUS) == [False]


def test_nothing_known_is_contiguous():
    assert choose_layouts([SecondsByLayout(0.0, 0.0)] * 3, []) == [False] * 3
    assert choose_layouts([], []) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_is_near_the_least_there_is(seed):
    """Beside all 2^8: no worse than all one way, and never far from the best."""
    draw = random.Random(seed)
    times = [SecondsByLayout(draw.uniform(0.5, 1.5), draw.uniform(0.5, 1.5)) for _ in range(8)]
    links = [
        Link(draw.choice([LAST, CONTIGUOUS, *range(k)]), k, draw.uniform(0, 0.5)) for k in range(8) for _ in range(2)
    ]
    found = total(times, links, choose_layouts(times, links))
    assert found <= min(total(times, links, [label] * 8) for label in (False, True))
    assert found <= 1.05 * min(total(times, links, labels) for labels in itertools.product((False, True), repeat=8))
