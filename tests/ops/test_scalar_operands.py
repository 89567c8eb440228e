"""A number, or a tensor without dimensions, beside a half precision: eager rounds the first operand to it, and computes
with the second one as it is. And bounds that are NaN."""

import pytest
import torch

import burnish
from burnish.settings import patch

HALVES = {torch.bfloat16: 257, torch.float16: 2049}
"""An integer that it does not hold, and that has few bits: products are exact before they are rounded."""


def computed(fn, *inputs):
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn, fullgraph=True)
        compiled(*inputs)
        return compiled(*inputs)


def products(x, number):
    """Exact ones of float64, rounded once."""
    return (x.double() * number).to(x.dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("of", [torch.int64, torch.int32, torch.float32, torch.float64])
def test_a_second_operand_without_dimensions_is_not_rounded(dtype, of):
    x, number = torch.arange(1, 25).to(dtype), HALVES[dtype]
    y = torch.tensor(number, dtype=of)
    assert torch.equal(computed(lambda x, y: x * y, x, y), products(x, number))
    assert torch.equal(computed(lambda x, y: x.clone().mul_(y), x, y), products(x, number))
    quotients = computed(lambda x, y: x / y, x, y)
    assert torch.equal(quotients, (x.double() / number).to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("is_tensor", [False, True])
def test_a_first_operand_is_rounded(dtype, is_tensor):
    x, number = torch.arange(1, 25).to(dtype), HALVES[dtype]
    held = torch.tensor(number).to(dtype).item()
    assert held != number
    if is_tensor:
        got = computed(lambda y, x: torch.mul(y, x), torch.tensor(number), x)
    else:
        got = computed(lambda x: torch.mul(number, x), x)
    assert torch.equal(got, products(x, held))
    assert torch.equal(computed(lambda x: number * x, x), products(x, number)), "there it is the second one"


NAN = float("nan")
BOUNDED = {
    "hardtanh's upper bound": lambda x: torch.nn.functional.hardtanh(x, -9.0, NAN),
    "hardtanh's lower bound": lambda x: torch.nn.functional.hardtanh(x, NAN, 9.0),
    "hardtanh_": lambda x: torch.nn.functional.hardtanh_(x + 0, NAN, NAN),
    "hardshrink": lambda x: torch.nn.functional.hardshrink(x, NAN),
    "logit": lambda x: torch.logit(x, NAN),
    "clamp": lambda x: x.clamp(-9.0, NAN),
    "threshold": lambda x: torch.nn.functional.threshold(x, NAN, 1.0),
}


@pytest.mark.parametrize("fn", BOUNDED.values(), ids=BOUNDED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gradients", [False, True])
def test_a_bound_that_is_nan_does_as_in_eager(fn, dtype, gradients):
    x = torch.linspace(-12, 12, 19).to(dtype).requires_grad_(gradients)
    found, expected = computed(lambda x: fn(x * 1) * 2, x), fn(x * 1) * 2
    torch.testing.assert_close(found, expected, equal_nan=True)
    if gradients:
        weight = torch.arange(1, 20).to(dtype)
        made = [torch.autograd.grad(y, x, weight)[0] for y in (found, expected)]
        torch.testing.assert_close(*made, equal_nan=True)
