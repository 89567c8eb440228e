"""Attention with masks that give subnormal weights: products avoid them, other readers see them."""

import pytest
import torch

import burnish
from burnish.lower.passes.clamp_subnormal_softmax import LEAST
from burnish.settings import patch

from ..recorded_events import recorded


@pytest.fixture
def lowered():
    with recorded("lower", datum="text") as seen, patch(never_slower=False, on_error="raise"):
        yield seen


def attention(q, k, v, mask):
    return torch.softmax(q @ k.transpose(-2, -1) + mask, -1) @ v


def inputs(mask=-100.0):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 17, 8) for _ in range(3))
    return q, k, v, torch.where(torch.rand(17, 17) < 0.4, mask, 0.0).fill_diagonal_(0.0)


def is_raised(texts):
    return f"clamp_min.default div, {LEAST!r}" in texts[-1]


@pytest.mark.parametrize("mask", [-85.0, -90.0, -100.0, -120.0, -torch.inf])
def test_results_are_as_near_as_eagers(mask, lowered):
    given = inputs(mask)
    assert mask == -torch.inf or mask < -95 or (torch.softmax(given[3], -1) > 0).all()
    with torch.no_grad():
        found = burnish.compile(attention, fullgraph=True)(*given)
        eager, exact = attention(*given), attention(*(x.double() for x in given))
    assert is_raised(lowered)
    assert (found - exact).abs().max() <= 2 * (eager - exact).abs().max()


@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("mask", [-100.0, -torch.inf])
def test_nan_values_are_weighted_as_in_eager(mask, special, lowered):
    q, k, v, given = inputs(mask)
    v[0, 1, 3, 2] = special
    q[1, 2, 4] = torch.nan
    with torch.no_grad():
        found = burnish.compile(attention, fullgraph=True)(q, k, v, given)
        torch.testing.assert_close(found, attention(q, k, v, given), equal_nan=True)
    assert is_raised(lowered)


def returned(q, k, v, mask):
    weights = torch.softmax(q @ k.transpose(-2, -1) + mask, -1)
    return weights @ v, weights


def roots(q, k, v, mask):
    weights = torch.softmax(q @ k.transpose(-2, -1) + mask, -1)
    return (weights.sqrt() + weights) @ v


def along_columns(q, k, v, mask):
    """They add up to 1 in another direction."""
    return torch.softmax(q @ k.transpose(-2, -1) + mask, -2) @ v


def turned(q, k, v, mask):
    return torch.softmax(q @ k.transpose(-2, -1) + mask, -1).transpose(-2, -1) @ v


def second(q, k, v, mask):
    return v.transpose(-2, -1) @ torch.softmax(q @ k.transpose(-2, -1) + mask, -1)


@pytest.mark.parametrize("function", [returned, roots, along_columns, turned, second])
def test_weights_with_other_readers_or_other_sums_stay(function, lowered):
    given = inputs()
    with torch.no_grad():
        found = burnish.compile(function, fullgraph=True)(*given)
    torch.testing.assert_close(found, function(*given))
    assert not is_raised(lowered)


def test_gradients_are_of_the_weights_as_they_are(lowered):
    def gradients(function):
        given = [x.requires_grad_(n < 3) for n, x in enumerate(inputs())]
        return torch.autograd.grad(function(*given).square().sum(), given[:3])

    torch.testing.assert_close(gradients(burnish.compile(attention, fullgraph=True)), gradients(attention))
