"""Integers of the program behind a break, such as the counter of a loop: positions and sizes of one graph."""

import os

import pytest
import torch

import burnish
from burnish import events


def graphs_of(function, calls, **options):
    """Compare with plain Python for each call, and return how many graphs each made."""
    made, counts = [], []
    stop = events.subscribe(lambda event: made.append(event.data["segment"].graph is not None), ("segment",))
    try:
        with burnish.settings.patch(never_slower=False):
            compiled = burnish.compile(function, **options)
            for make in calls:
                before = sum(made)
                torch.testing.assert_close(compiled(*make()), function(*make()))
                counts.append(sum(made) - before)
    finally:
        stop()
    return counts


def points(length, count):
    def make():
        return torch.randn(2, length, 3, generator=torch.Generator().manual_seed(length)), count

    return make


def farthest_points(xyz, count):
    rows, length, _ = xyz.shape
    found = torch.zeros(rows, count, dtype=torch.long)
    distance = torch.full((rows, length), 1e10)
    farthest = torch.zeros(rows, dtype=torch.long)
    row = torch.arange(rows)
    for i in range(count):
        found[:, i] = farthest
        centre = xyz[row, farthest, :].view(rows, 1, 3)
        near = torch.sum((xyz - centre) ** 2, -1)
        mask = near < distance
        distance[mask] = near[mask]
        farthest = torch.max(distance, -1)[1]
    return (found,)


@pytest.mark.parametrize("count", (8, 40))
def test_a_counter_that_is_an_index_makes_one_graph(count):
    first, *others = graphs_of(farthest_points, [points(64, count)] * 3)
    assert first <= 4
    assert others == [0, 0]


def test_a_counter_is_no_constant_where_sizes_are_symbolic():
    calls = [points(64, 12), points(64, 20), points(80, 20), points(96, 25)]
    assert sum(graphs_of(farthest_points, calls, dynamic=True)) <= 7


def test_what_is_computed_from_a_counter_is_an_index_as_well():
    def neighbours(x, count):
        i, total = 0, x[0] * 0
        while i < count:
            if total.sum() > 1e9:
                break
            total = total + x[i + 2] * i - x[i : i + 3].sum(0)
            i += 1
        return total, i

    def make(count):
        return lambda: (torch.arange(60.0).view(15, 4), count)

    first, *others = graphs_of(neighbours, [make(12)] * 2 + [make(9)])
    assert first <= 5
    assert others[0] == 0


def test_a_counter_that_leaves_the_tensor_raises_as_in_eager():
    def until_the_end(x):
        i, total = 0, 0
        while True:
            if x.sum() > 1e9:
                break
            try:
                total = total + x[i + 4] * i
            except IndexError:
                return total, i
            i += 1

    calls = [lambda n=n: (torch.arange(3.0 * n).view(n, 3),) for n in (12, 12, 9, 15)]
    graphs_of(until_the_end, calls)


def test_views_at_a_counter_share_memory():
    def add_to_rows(x, count):
        x, rows = x.clone(), []
        for i in range(count):
            if x.sum() > 1e9:
                break
            rows.append(x[i].add_(i))
        x.mul_(2)
        return rows, x

    graphs_of(add_to_rows, [lambda n=n: (torch.ones(9, 2), n) for n in (6, 9, 2, 7)])


def test_a_local_that_follows_from_a_size_stays_symbolic_after_a_break():
    def doubled(x):
        n = x.shape[0] * 2
        y = x + 1
        if y.sum() > 0:
            y = y + 1
        z = torch.zeros(n)
        z[: n // 2] = y[: n // 2]
        return z.view(2, n // 2) + y, n

    calls = [lambda n=n: (torch.arange(1.0, n + 1),) for n in (6, 7, 8, 9)]
    assert graphs_of(doubled, calls, dynamic=True) == [2, 0, 0, 0]
    assert graphs_of(doubled, calls) == [2, 2, 0, 0]


def test_a_counter_is_not_taken_for_a_size_that_it_is_equal_to():
    def rows(x, start):
        i, total = start, x.sum(0)
        while i < x.shape[0]:
            if total.sum() > 1e9:
                break
            total = total + x[i] * i
            i += 1
        return (total,)

    calls = [lambda n=n, s=s: (torch.ones(n, 3), s) for n, s in ((9, 3), (9, 3), (10, 4), (8, 3))]
    assert sum(graphs_of(rows, calls, dynamic=True)) <= 6


def ring(x, first, end):
    found = []
    for position in range(end):
        os.getpid()
        if position >= first:
            found.append(x[position & 31] + torch.zeros(position + 1, 1))
    return found


def of_length(x, y):
    position = y.shape[0]
    return [x[position % 20] + torch.zeros(position + 1, 1), x[: position ^ 64].sum() + torch.zeros(position)]


@pytest.mark.parametrize("dynamic", (None, True))
def test_a_remainder_is_not_taken_for_the_number_that_it_is_of(dynamic):
    x = torch.arange(400.0).view(200, 2)
    ends = ((2, 6), (2, 6), (30, 34))
    graphs_of(ring, [lambda ends=ends: (x, *ends) for ends in ends], dynamic=dynamic)
    graphs_of(of_length, [lambda size=size: (x, x[:size]) for size in (3, 4, 25, 70)], dynamic=dynamic)
