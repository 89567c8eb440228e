"""Graph breaks in loops: iterations may branch differently, and changes within a call are no changes between calls."""

import warnings

import pytest
import torch
from torch import nn

import burnish
from burnish.settings import patch

ROUNDS = 12


class Layer(nn.Module):
    def __init__(self, width, next_width):
        super().__init__()
        self.linear = nn.Linear(width, next_width)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        burnish.graph_break()
        return y * 2 + 1


class Layers(nn.Module):
    def __init__(self, grows=0):
        super().__init__()
        self.layers = nn.ModuleList(Layer(4 + k * grows, 4 + (k + 1) * grows) for k in range(ROUNDS))


class InTurn(Layers):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class KeepingAll(Layers):
    def forward(self, x):
        all_of_them = ()
        for layer in self.layers:
            all_of_them += (x,)
            x = layer(x)
        return x, all_of_them


class ByNumber(Layers):
    def forward(self, x):
        for k in range(len(self.layers)):
            x = self.layers[k](x)
        return x


class Numbered(Layers):
    def forward(self, x):
        for k, layer in enumerate(self.layers):
            x = layer(x) * (k + 1)
        return x


class Beside(Layers):
    def forward(self, x):
        for layer, k in zip(self.layers, range(ROUNDS), strict=True):
            x = layer(x) + k
        return x


def points_of(compiled):
    program = compiled.__burnish_program__
    return [program.entry, *program.continuations.values()]


@pytest.mark.parametrize("grows", (0, 1), ids=("alike", "growing"))
@pytest.mark.parametrize("kind", (InTurn, KeepingAll, ByNumber, Numbered, Beside))
def test_rounds_that_differ_are_all_captured_and_found_again(kind, grows):
    model = kind(grows).eval()
    compiled = burnish.compile(model, backend="eager")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(3):
            x = torch.full((2, 4), k / 3)
            torch.testing.assert_close(compiled(x), model(x))
            if k == 1:
                made = [point.segments for point in points_of(compiled)]
    points = points_of(compiled)
    assert not any(point.given_up for point in points)
    assert [point.segments for point in points] == made
    assert max(point.made_in for point in points) <= 2


def add_lengths(x, names):
    for name in names:
        burnish.graph_break()
        x = x + len(name)
    return x


@pytest.mark.falls_back("limit")
def test_calls_that_bring_new_rounds_reach_the_limit():
    compiled = burnish.compile(add_lengths, backend="eager")
    with patch(segment_limit=3), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for call in range(6):
            names = ["a" * (1 + 4 * call + k) for k in range(4)]
            assert torch.equal(compiled(torch.ones(2), names), torch.ones(2) + sum(map(len, names)))
    given_up = [point for point in points_of(compiled) if point.given_up]
    assert given_up and all(point.made_in <= 3 for point in points_of(compiled))
    assert any("B501, setting segment_limit" in str(each.message) for each in told)


@pytest.mark.falls_back("limit")
def test_one_call_cannot_bring_rounds_without_end():
    compiled = burnish.compile(add_lengths, backend="eager")
    names = ["a" * k for k in range(40)]
    with patch(segment_limit=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), names), torch.ones(2) + sum(map(len, names)))
    assert max(len(point.segments) for point in points_of(compiled)) == 16


def test_what_came_next_is_asked_first():
    compiled = burnish.compile(add_lengths, backend="eager")
    names = ["a" * k for k in range(8)]
    with patch(native_guards=False):
        for _ in range(2):
            compiled(torch.ones(2), names)
    asked = []
    for point in points_of(compiled):
        for segment in point.segments:
            segment.check = lambda slots, check=segment.check: asked.append(check(slots)) or asked[-1]
    for _ in range(2):
        asked.clear()
        compiled(torch.ones(2), names)
    refused = sum(answer is None for answer in asked)
    assert len(asked) - refused >= len(names) and refused <= 2, "each round is found where the last call found it"


def test_callers_of_a_break_are_there_for_who_looks_at_them():
    """Most instructions at a break are executed without frames."""
    import sys

    def inner(x):
        burnish.graph_break()
        told = sys.exc_info()[1]
        burnish.graph_break()
        return x + len(told.args)

    def middle(x):
        try:
            raise ValueError("one", "two")
        except ValueError:
            return inner(x) * 2

    def fn(x, fails):
        y = middle(x + 1)
        burnish.graph_break()
        if fails:
            raise KeyError("it fails")
        return y - 1

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), False), torch.full((2,), 7.0))
        with pytest.raises(KeyError, match="it fails"):
            compiled(torch.ones(2), True)
