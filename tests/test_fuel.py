"""Fuel: optimization stops after a number of rewrites, deterministically. Programs are right wherever it stops."""

import pytest
import torch

import burnish
from burnish import events
from burnish.ir import fuel
from burnish.settings import patch

from .recorded_events import recorded
from .seeding import seed


@pytest.fixture(autouse=True)
def full():
    fuel.refill()


@pytest.fixture
def rewrites():
    """The names of those that are made."""
    made = []
    stop = events.subscribe(lambda event: made.append(event.data["text"].split()[1]), ["fuel"])
    yield made
    stop()


def test_without_the_setting_everything_is_allowed_and_nothing_counted(rewrites):
    assert all(fuel.allows("fuse", "a") for _ in range(3))
    with patch(fuel=1):
        assert fuel.allows("fuse", "a")
    assert rewrites == ["fuse"]


def test_so_many_rewrites_are_allowed():
    with patch(fuel=2):
        assert [fuel.allows("fuse", "a") for _ in range(4)] == [True, True, False, False]


def test_rewrite_is_described_with_its_line():
    class Node:
        line = '  File "model.py", line 12, in forward'

        def __str__(self):
            return "y = relu x"

    with recorded("fuel") as found, patch(fuel=1):
        assert fuel.allows("fuse", Node(), "in the loops of", ["a", "b"])
    text = '1 fuse File "model.py", line 12, in forward\ny = relu x\n=>\nin the loops of a\nb'
    assert [(event.data["number"], event.data["text"]) for event in found] == [(1, text)]


def test_each_size_has_the_same_fuel():
    with patch(fuel=5):
        fuel.allows("fuse", "a")
        counts = [sum(fuel.allows("fuse", "a") for _ in range(wanted)) for wanted in fuel.same_for_each([2, 3, 1])]
        assert counts == [2, 3, 1]
        assert fuel.allows("fuse", "a") and not fuel.allows("fuse", "a")


def test_nothing_that_was_compiled_before_is_used_with_fuel(rewrites, tmp_path):
    def f(x):
        return x.exp() + 1

    for _ in range(2):
        burnish.reset()
        fuel.refill()
        with patch(cache=True, cache_dir=tmp_path, fuel=100):
            compiled = burnish.compile(f)
            compiled(torch.randn(8))
    assert rewrites and rewrites[: len(rewrites) // 2] == rewrites[len(rewrites) // 2 :]


# -- programs ----------------------------------------------------------------------------------------------------------


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 16, 3, stride=2)
        self.norm, self.last = torch.nn.BatchNorm2d(16), torch.nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.nn.functional.max_pool2d(torch.relu(self.second(x)), 2)
        return self.last(x.mean((2, 3))).log_softmax(-1)


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = torch.nn.Embedding(50, 32), torch.nn.LayerNorm(32)
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.wide, self.narrow = torch.nn.Linear(32, 128), torch.nn.Linear(128, 32)

    def forward(self, words):
        x = self.embedding(words)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.narrow(torch.nn.functional.gelu(self.wide(self.norm(x))))
        return x @ self.embedding.weight.T


def writes(a, b):
    a.mul_(2).add_(b)
    a[1:].sigmoid_()
    a.index_add_(0, torch.tensor([0, 2]), b[:2])
    return a.sum(0) + b, a.argmax(1)


def joins(x, y):
    z = torch.cat([x.sin(), y.cos(), x * y], 1)
    return z.cumsum(1).softmax(1), z.sum(), (z > 0).any(0), x[:, y[0].long().abs() % 3]


def drops(x):
    x = torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)
    return torch.nn.functional.dropout(x @ x.T, 0.1)


def matrices(count):
    return lambda: tuple(torch.randn(24, 24) for _ in range(count))


PROGRAMS = {
    "classifier": (Classifier, lambda: (torch.randn(2, 3, 12, 12),)),
    "words": (Words, lambda: (torch.randint(0, 50, (2, 8)),)),
    "writes": (lambda: writes, matrices(2)),
    "joins": (lambda: joins, matrices(2)),
}
LIMITS = (0, 1, 6, 30, 100, 10**6)


def results(fn, args):
    out = fn(*args)
    return (*(out if isinstance(out, tuple) else (out,)), *args)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_right_wherever_it_stops(name, limit):
    make, inputs = PROGRAMS[name]
    seed(0)
    module = make()
    if isinstance(module, torch.nn.Module):
        module.eval()
    with patch(fuel=limit), torch.no_grad():
        compiled = burnish.compile(module, fullgraph=True)
        for _ in range(3):
            args = inputs()
            want = results(module, [x.clone() for x in args])
            torch.testing.assert_close(results(compiled, args), want)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", ["classifier", "words"])
def test_gradients_are_right_wherever_it_stops(name, limit):
    make, inputs = PROGRAMS[name]
    seed(0)
    module = make().double()
    args = [x.double() if x.is_floating_point() else x for x in inputs()]

    def gradients(fn):
        return torch.autograd.grad(fn(*args).square().mean(), list(module.parameters()))

    want = gradients(module)
    with patch(fuel=limit):
        compiled = burnish.compile(module, fullgraph=True)
        for _ in range(3):
            torch.testing.assert_close(gradients(compiled), want)


@pytest.mark.parametrize("limit", [0, 1, 4, 7, 10**6])
def test_one_program_serves_all_sizes_wherever_it_stops(limit):
    def f(x):
        y = torch.relu(x * 2 + 1)
        return y.exp() * 3

    with recorded("guards.sizes", datum="text") as sizes, patch(fuel=limit):
        compiled = burnish.compile(f, fullgraph=True, dynamic=True)
        for size in (5, 9, 17, 33):
            x = torch.randn(size, 6)
            for _ in range(2):
                torch.testing.assert_close(compiled(x), f(x))
    assert any(text.startswith("compiled for all") for text in sizes)


@pytest.mark.parametrize("limit", [0, 4, 10**6])
def test_random_numbers_are_those_of_eager_if_asked_for_wherever_it_stops(limit):
    x = torch.randn(8, 8)
    with patch(fuel=limit, eager_random=True):
        compiled = burnish.compile(drops)
        for _ in range(3):
            seed(1)
            got = compiled(x)
            seed(1)
            torch.testing.assert_close(got, drops(x))


def test_each_step_of_fuel_makes_one_rewrite_more(rewrites):
    counts = []
    for limit in range(8):
        burnish.reset()
        fuel.refill()
        rewrites.clear()
        with patch(fuel=limit):
            burnish.compile(writes)(*matrices(2)())
        counts.append(list(rewrites))
    assert [len(each) for each in counts] == list(range(8))
    assert all(more[:-1] == each for each, more in zip(counts, counts[1:], strict=False))
