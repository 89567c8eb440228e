"""A number, or a tensor without dimensions, beside a half precision: eager rounds the first operand to it, and computes
with the second one as it is."""

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
