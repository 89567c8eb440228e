"""Ten training steps of the benchmark's models: the loss curve is as near to float64 as eager's."""

import pytest
import torch
from bench.contestants import contestant_of
from bench.models import FUNCTIONS, MODELS
from bench.workload import Workload, loss_of

import burnish
from burnish.settings import patch

STEPS = 10
NEAR = 1e-6
"""A tolerance of the loss: below it, eager's error is indistinguishable from the rounding of the loss."""

BATCHES = 2
"""Times the usual batch: batch norm cannot train on one sample."""


def curve(work, compiler=lambda function: function):
    """Gradients are clipped: untrained, these networks give numbers whose gradients would make them diverge."""
    side = work.side(contestant_of("eager"))
    module = side.fn
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    def train(*args, **kwargs):
        optimizer.zero_grad()
        loss = loss_of(module(*args, **kwargs))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    run = compiler(train)
    return torch.stack([run(*side.args, **side.kwargs).double() for _ in range(STEPS)])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name not in FUNCTIONS])
def test_ten_losses_are_as_near_to_double_precision_as_eagers(name):
    work = Workload.of(name, "train", BATCHES, dropout=False)
    exact, eager = curve(work.in_double()), curve(work)
    assert exact.isfinite().all() and eager.isfinite().all() and len(exact.unique()) == STEPS
    with patch(never_slower=False, on_error="raise"):
        found = curve(work, burnish.compile)
    off, allowed = ((x - exact).abs().max() for x in (found, eager))
    assert off <= 2 * max(allowed, NEAR * exact.abs().max()), f"off by {off}, eager by {allowed}, of {exact[0]}"
