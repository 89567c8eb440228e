"""Builtins that read each element of a shape, or of numbers that change: one graph serves all sizes."""

import math

import pytest
import torch
from torch import distributions

import burnish

from ..recorded_events import recorded

SIZES = (3, 5, 6, 4, 9, 17, 8, 3)


def reversed_by_steps(x):
    steps = reversed([x.shape[0], 2, 7])
    next(steps)
    return x * next(steps), list(steps)


def list_that_changes_meanwhile(x):
    numbers, found = [x.shape[0], 2, 7], []
    for number in reversed(numbers):
        found.append(number)
        numbers.pop(0)
    return x * found[0], found, numbers


PROGRAMS = {
    "the product of a shape": lambda x: x / math.prod(x.shape),
    "a product from a start on": lambda x: x * math.prod([x.shape[0], 2, True], start=3),
    "the sum of a shape": lambda x: x * sum(x.shape),
    "the extremes of a shape": lambda x: x * max(x.shape) + min(x.shape[1:]),
    "a shape in reverse": lambda x: x.reshape(tuple(reversed(x.shape))),
    "two reversed shapes": lambda x: x * sum(a * b for a, b in zip(reversed(x.shape), reversed((1, 2)), strict=True)),
    "a reversed iterator that is returned": lambda x: (x + 1, [*reversed((x.shape[0], 1.5))]),
    "a reversed iterator by steps": reversed_by_steps,
    "a list that changes meanwhile": list_that_changes_meanwhile,
    "the density of a distribution": lambda x: distributions.Normal(0.0, 1.0).log_prob(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_serves_all_sizes(name):
    graphs = graphs_of(PROGRAMS[name], [(torch.randn(size, 2),) for size in SIZES])
    assert graphs == 2  # the first is for the first size


@pytest.mark.parametrize("function", [math.prod, lambda t: math.prod(t[1:], start=t[0]), lambda t: [*reversed(t)][1]])
def test_one_graph_serves_all_numbers(function):
    calls = [(torch.ones(3), (1.5 + k, 2.25 * k, 3)) for k in range(6)]
    assert graphs_of(lambda x, numbers: x * function(numbers), calls) <= 3  # 0.0 may have its own


def test_a_reversed_iterator_that_leaves_the_function_has_plain_numbers():
    kept = []

    @burnish.compile
    def fn(x):
        kept.append(reversed([x.shape[0], 7]))
        return x * 2, reversed(x.shape)

    for size in SIZES:
        _, shape = fn(torch.ones(size, 2))
        numbers = [*shape, *kept.pop()]
        assert numbers == [2, size, 7, size] and {*map(type, numbers)} == {int}


@pytest.mark.parametrize(
    "call", ["math.prod(x)", "math.prod([2, None])", "math.prod((1,), 2)", "reversed(3)", "reversed()"]
)
def test_arguments_that_do_not_fit_raise_as_in_python(call):
    def fn(x):
        return eval(call, {"math": math}, {"x": x.shape[0]})

    with pytest.raises(TypeError) as expected:
        fn(torch.ones(2))
    with pytest.raises(TypeError) as found:
        burnish.compile(fn)(torch.ones(2))
    assert str(found.value) == str(expected.value)


def graphs_of(fn, calls):
    burnish.reset()
    compiled = burnish.compile(fn)
    with recorded("segment", datum="segment") as segments:
        for args in calls:
            torch.testing.assert_close(compiled(*args), fn(*args), check_stride=True)
    return sum(segment.graph is not None for segment in segments)
