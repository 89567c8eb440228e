"""Live scalars in training programs: numbers read from tensors stay in the graph, changing numbers are inputs."""

import collections

import pytest
import torch
from torch import nn

import burnish

from .harness import program
from .training_harness import captured


def graphs_of(fn, *calls):
    burnish.reset()
    compiled = burnish.compile(fn, backend="eager")
    answers = [compiled(*args) for args in calls]
    return answers, captured(compiled)


def test_what_an_optimizer_reads_from_its_step_count_is_a_node():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())

    def train(x):
        model(x).sum().backward()
        optimizer.step()

    _, seen = graphs_of(train, (torch.ones(1, 2),))
    (graph,) = seen.graphs
    assert seen.breaks == []
    read = [n for n in graph.graph.nodes if n.target == "item"]
    assert len(read) == 2 and all(user.op == "call_function" for n in read for user in n.users)


def test_a_counter_in_an_attribute_is_compiled_for_twice():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    model = Counting()
    answers, seen = graphs_of(model, *[(torch.ones(2),)] * 20)
    assert [a[0].item() for a in answers] == list(range(1, 21)) and model.calls == 20
    assert (seen.segments, seen.given_up) == (2, [])


def test_a_counter_decides_a_branch():
    state = {"calls": 0}

    def fn(x):
        state["calls"] += 1
        return x * 2 if state["calls"] % 5 == 0 else x

    answers, seen = graphs_of(fn, *[(torch.ones(1),)] * 20)
    assert [a.item() for a in answers] == [2.0 if i % 5 == 0 else 1.0 for i in range(1, 21)]
    assert seen.segments <= 3


def test_a_number_among_the_arguments_changes():
    answers, seen = graphs_of(lambda x, n: x + n, *[(torch.zeros(1), n) for n in (1, 2, 3, 2.5, 4, 1)])
    assert [a.item() for a in answers] == [1, 2, 3, 2.5, 4, 1]
    assert seen.segments == 3  # 1, then any int, then 2.5


def test_a_pair_of_numbers_changes():
    group = {"betas": (0.9, 0.99)}

    def fn(x):
        first, second = group["betas"]
        group["betas"] = (first * 0.5, *group["betas"][1:])
        return x * first + second

    answers, seen = graphs_of(fn, *[(torch.ones(1, dtype=torch.float64),)] * 6)
    assert [a.item() for a in answers] == [0.9 * 0.5**i + 0.99 for i in range(6)]
    assert seen.segments == 2


calls = 0


def test_a_global_and_a_closure_count():
    mine = 0

    def fn(x):
        global calls
        nonlocal mine
        calls, mine = calls + 1, mine + 2
        return x + calls + mine

    answers, seen = graphs_of(fn, *[(torch.zeros(1),)] * 10)
    assert [a.item() for a in answers] == [3.0 * i for i in range(1, 11)]
    assert seen.segments == 2 and (calls, mine) == (10, 20)


@pytest.mark.parametrize("make", [list, collections.deque])
@pytest.mark.parametrize("index", [0, -1])
def test_a_counter_in_a_list_is_compiled_for_twice(make, index):
    counts = make([0, "other", 0.0])

    def fn(x):
        counts[index] += 1
        return x + counts[index]

    answers, seen = graphs_of(fn, *[(torch.zeros(1),)] * 12)
    assert [a.item() for a in answers] == list(range(1, 13))
    assert counts[index] == 12 and type(counts[index]) in (int, float) and counts[1] == "other"
    assert (seen.segments, seen.given_up) == (2, [])


@program
def test_changing_numbers_in_a_list_that_is_read_in_all_ways():
    counts, limits = [0, 10, 20], [0, 1]

    def fn(x):
        counts[0] += 1
        counts[1], counts[2] = counts[2], counts[1] + counts[0]
        seen = counts[0] in counts, sum(counts), sorted(counts), max(counts), counts.index(counts[2]), tuple(counts)
        limits[1] = limits[0] + len(counts)
        limits[0] += 2
        limits.append(limits.pop() + 1)
        return x * counts[0] + counts[2], seen, [c * 2 for c in counts], f"{counts}", counts[0] in (2, 3), [*limits]

    return fn, [(torch.ones(2),)] * 6, counts, limits


@program
def test_a_changing_number_as_a_size_an_index_and_a_key():
    state = {"n": 0}
    names = ["a", "b", "c", "d", "e"]

    def fn(x):
        state["n"] += 1
        n = state["n"]
        return x.new_ones(n), names[n], {n: x}, f"{n}", n in (2, 3), [0] * n

    return fn, [(torch.ones(2),)] * 4, state


@program
def test_a_changing_number_through_get_pop_and_setdefault():
    state = {"n": 0.5, "m": 1}

    def fn(x):
        n = state.get("n")
        m = state.pop("m")
        k = state.setdefault("n", 3)
        state["n"], state["m"] = n + 1, m * 2
        return x * n, x + m, k, state.get("other", n)

    return fn, [(torch.ones(2),)] * 5, state


@program
def test_a_changing_number_is_read_again_after_it_was_written_by_native_code():
    state = {"n": 1}

    def fn(x):
        n = state["n"]
        state.update(n=n + 1, last=n)
        return x * state["n"], sorted(state.values()), dict(state)

    return fn, [(torch.ones(2),)] * 5, state


@program
def test_a_changing_number_printed_and_stored():
    class Meter:
        value, count = 0.0, 0

        def update(self, v):
            self.value += v
            self.count += 1
            print(f"{self.count}: {self.value:.2f}")

    meter, history = Meter(), []

    def fn(x):
        meter.update(0.5)
        history.append((meter.count, meter.value))
        return x * meter.value

    return fn, [(torch.ones(2),)] * 5, meter, history


def test_membership_asks_a_changing_number_only_for_the_answer():
    state = {"n": 0}
    milestones = {3: 1, 7: 1}

    def fn(x):
        state["n"] += 1
        return x * 2 if state["n"] in milestones else x

    answers, seen = graphs_of(fn, *[(torch.ones(1),)] * 12)
    assert [a.item() for a in answers] == [2.0 if i in (3, 7) else 1.0 for i in range(1, 13)]
    assert seen.segments == 3


def test_sections_are_found_by_bisection():
    import bisect

    state = {"n": 0}

    def fn(x):
        state["n"] += 1
        return x + bisect.bisect_right([2, 5], state["n"]), bisect.bisect_left([2, 5], state["n"])

    answers, seen = graphs_of(fn, *[(torch.zeros(1),)] * 8)
    assert [(int(a), b) for a, b in answers] == [
        (bisect.bisect_right([2, 5], i), bisect.bisect_left([2, 5], i)) for i in range(1, 9)
    ]
    assert seen.given_up == []
