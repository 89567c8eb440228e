"""Capturable optimizers: with CUDA graphs, steps are counted on the device of the parameters."""

import sys

import pytest
import torch
from torch import nn

import burnish
from burnish.capture.pytorch.modules import optimizers


@pytest.fixture
def pretended(monkeypatch):
    """Parameters on a CPU are taken for those of a GPU."""
    monkeypatch.setattr(optimizers, "is_on_gpu", lambda x: True)
    monkeypatch.setattr(sys.modules["torch.optim.adam"], "_get_capturable_supported_devices", lambda *_: ["cpu"])


def trained(compile, make=torch.optim.AdamW, steps=6, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = make(model.parameters(), lr=0.05, **options)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run, x = compile(step), torch.randn(5, 6)
    return [run(x).item() for _ in range(steps)], list(model.parameters()), optimizer


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW])
def test_steps_are_counted_in_tensors_and_training_goes_as_in_eager(make, pretended):
    losses, params, _ = trained(lambda fn: fn, make, capturable=True)
    got, own, optimizer = trained(lambda fn: burnish.compile(fn, mode="reduce-overhead", fullgraph=True), make)
    assert optimizer.param_groups[0]["capturable"] is True
    torch.testing.assert_close(got, losses)
    torch.testing.assert_close(own, params)


def test_without_cuda_graphs_and_without_a_gpu_optimizers_stay_as_they_are(pretended, monkeypatch):
    _, _, optimizer = trained(burnish.compile)
    assert optimizer.param_groups[0]["capturable"] is False
    monkeypatch.undo()
    _, _, optimizer = trained(lambda fn: burnish.compile(fn, mode="reduce-overhead"))
    assert optimizer.param_groups[0]["capturable"] is False


def test_existing_step_counts_continue(pretended):
    _, params, optimizer = trained(lambda fn: fn, steps=3)
    assert all(state["step"].item() == 3 for state in optimizer.state.values())
    optimizers.make_capturable(optimizer)
    optimizers.make_capturable(optimizer)
    assert optimizer.param_groups[0]["capturable"] is True
    assert all(state["step"].item() == 3 for state in optimizer.state.values())
    # One that has no such option, or does it otherwise, is left alone.
    for other in (torch.optim.SGD(params, lr=0.1), torch.optim.Adam(params, fused=True)):
        before = dict(other.param_groups[0])
        optimizers.make_capturable(other)
        assert other.param_groups[0] == before
