"""Losses whose Python checks its data first: the check is part of the graph."""

import pytest
import torch
from torch.nn import functional as F

import burnish
from burnish.settings import patch

from .compare_training import alike


def test_gaussian_nll_loss_is_compiled_and_learns():
    def build(compiler):
        layer = torch.nn.Linear(3, 2)
        run = compiler(lambda x, y: F.gaussian_nll_loss(layer(x)[:, 0], y, layer(x)[:, 1].exp()))

        def step(x, y):
            layer.zero_grad()
            loss = run(x, y)
            loss.backward()
            return loss.detach()

        return step, (layer,)

    seen = alike(build, lambda i: (torch.randn(4, 3), torch.randn(4)))
    assert (seen.refused, seen.breaks) == ([], []) and seen.planned


def test_gaussian_nll_loss_refuses_negative_variances():
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(lambda x, v: F.gaussian_nll_loss(x, x * 2, v))
        x = torch.randn(4)
        for _ in range(3):
            torch.testing.assert_close(compiled(x, x.abs()), F.gaussian_nll_loss(x, x * 2, x.abs()))
            with pytest.raises(ValueError, match="negative"):
                compiled(x, -x.abs())


def test_a_condition_that_two_distributions_check_is_checked_once():
    def fn(mean, scale):
        # Dynamo's first use in a process turns the checks off by default.
        first, second = (torch.distributions.Normal(mean, scale, validate_args=True) for _ in range(2))
        return first.log_prob(mean), second.entropy()

    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn)
        mean, scale = torch.randn(3), torch.rand(3) + 0.1
        for _ in range(3):
            torch.testing.assert_close(compiled(mean, scale), fn(mean, scale))
            with pytest.raises(ValueError, match="to satisfy the constraint"):
                compiled(mean, -scale)
