"""Functions of ``math`` of numbers that change from call to call: one graph for all of them, and eager's errors."""

import math

import pytest
import torch

import burnish

from ..recorded_events import recorded

INSIDE = (0.5, 0.25, -0.75, 0.1, 0.9, -0.3, 0.7, 0.0, -0.6, 0.2, 0.8, 0.4)
ABOVE = tuple(3 * value + 4 for value in INSIDE)
OF_ONE = {
    **dict.fromkeys("asin acos atanh sinh cosh asinh expm1 exp2 cbrt erf erfc degrees radians".split(), INSIDE),
    **dict.fromkeys(("acosh", "gamma", "lgamma"), ABOVE),
}
OF_TWO = ("copysign", "fmod", "remainder")


def same_in_two_graphs(fn, values):
    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    with recorded("segment") as segments:
        for i, value in enumerate(values):
            x = torch.randn(5 + i % 3)
            torch.testing.assert_close(compiled(x, value), fn(x, value), rtol=0, atol=0)
    return len(segments)


@pytest.mark.parametrize("name", OF_ONE)
def test_a_function_of_a_changing_number_is_an_input(name):
    function = getattr(math, name, None)
    if function is None:
        pytest.skip("this Python does not have it")
    assert same_in_two_graphs(lambda x, a: x * function(a) + a, OF_ONE[name]) <= 3


@pytest.mark.parametrize("name", OF_TWO)
def test_a_function_of_two_changing_numbers_is_an_input(name):
    function = getattr(math, name)
    assert same_in_two_graphs(lambda x, a: x * function(a, a + 2) + function(1.5, a + 2), INSIDE) <= 3
    assert same_in_two_graphs(lambda x, a: x * math.ldexp(a, 3), INSIDE) <= 3


@pytest.mark.parametrize("name", ["asin", "acosh", "gamma", "fmod"])
def test_a_number_outside_the_domain_raises_as_in_eager(name):
    function = getattr(math, name)

    def fn(x, a):
        return x * (function(a, a) if name == "fmod" else function(a))

    compiled = burnish.compile(fn, backend="eager")
    x, fits = torch.randn(4), {"acosh": (2.0, 3.0, 4.0), "fmod": (1.0, 2.0, 3.0)}.get(name, (0.5, 0.25, 0.75))
    refused = {"asin": 2.0, "acosh": 0.5, "gamma": -1.0, "fmod": 0.0}[name]
    for a in (*fits, refused, *fits, refused):
        try:
            want = fn(x, a)
        except ValueError as error:
            with pytest.raises(ValueError, match=str(error)):
                compiled(x, a)
        else:
            torch.testing.assert_close(compiled(x, a), want, rtol=0, atol=0)


def test_a_number_from_a_size_is_right_for_all_sizes():
    def fn(x):
        n = x.shape[0]
        return x * math.erf(n / 50), x[: int(math.cbrt(n))] if hasattr(math, "cbrt") else x, x * math.remainder(n, 7)

    compiled = burnish.compile(fn, backend="eager")
    for n in (5, 8, 27, 64, 9, 1000, 5, 27, 125):
        x = torch.randn(n)
        for got, want in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0)
