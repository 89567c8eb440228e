"""With an activation memory budget less is saved for backward, and gradients are the same."""

import pytest
import torch
from bench.intermediates import held_in_arenas, peak_of
from torch import nn
from torch.nn import functional as F

import burnish
from burnish import UserError
from burnish.schedule.partition import activation_memory_budget, partition_joint_graph
from burnish.settings import from_environment, patch

from .test_training_memory import Layer, convolutions, step

BUDGETS = (1.0, 0.7, 0.4, 0.0)


class Dropping(nn.Module):
    """Random numbers cannot be recomputed."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(128, 512), nn.Linear(512, 128)

    def forward(self, x):
        return self.second(F.dropout(F.gelu(self.first(x)), 0.2)).softmax(-1)


NETS = {
    "layers": (lambda: nn.Sequential(Layer(), Layer()), (4, 64, 128), 0),
    "convolutions": (lambda: convolutions(nn.SiLU), (2, 3, 32, 32), 0),
    "dropout": (lambda: nn.Sequential(Dropping(), Dropping()), (64, 128), 2 * 64 * 512 * 4),
}
"""The last is the number of bytes of random numbers."""


def outcome(net, x, fn) -> list[torch.Tensor]:
    net.zero_grad()
    torch.manual_seed(1)
    y = fn(x)
    y.square().mean().backward()
    return [y.detach(), *(p.grad.clone() for p in net.parameters())]


@pytest.mark.parametrize("name", NETS)
def test_less_is_saved_and_gradients_are_eagers(name, monkeypatch):
    sizes = []

    def noted(crossing, budget):
        found = activation_memory_budget.choose(crossing, budget)
        sizes.append(activation_memory_budget.size_of(found, crossing))
        return found

    monkeypatch.setattr(partition_joint_graph, "choose", noted)
    build, shape, drawn = NETS[name]
    torch.manual_seed(0)
    net, x = build(), torch.randn(shape)
    wanted = outcome(net, x, net)
    for budget in BUDGETS:
        compiled = burnish.compile(net, options={"memory_budget": budget, "eager_random": True})
        with patch(cache=False, on_error="raise", never_slower=False):
            for _ in range(2):
                torch.testing.assert_close(outcome(net, x, compiled), wanted, rtol=2e-4, atol=1e-5)
    assert len(sizes) == len(BUDGETS)
    for budget, size in zip(BUDGETS, sizes, strict=True):
        assert size <= max(budget * sizes[0], drawn)


def test_a_step_takes_less_memory():
    peaks = []
    for budget in (1.0, 0.4):
        torch.manual_seed(0)
        net, x, held = nn.Sequential(*(Layer() for _ in range(6))), torch.randn(16, 128, 128), held_in_arenas()
        call = step(burnish.compile(net, options={"memory_budget": budget, "never_slower": False}), net, x)
        peaks.append(peak_of(call) + held_in_arenas() - held)
    assert peaks[1] <= 0.85 * peaks[0]


def test_a_whole_step_takes_a_budget():
    torch.manual_seed(0)
    nets = [nn.Sequential(Layer(), Layer()) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    x = torch.randn(4, 64, 128)

    def train(net, optimizer):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9) for net in nets]
    compiled = burnish.compile(train, fullgraph=True, options={"memory_budget": 0.3})
    for _ in range(4):
        torch.testing.assert_close(compiled(nets[0], optimizers[0]), train(nets[1], optimizers[1]))
    torch.testing.assert_close(list(nets[0].parameters()), list(nets[1].parameters()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [1.5, -0.1, "half", True, None])
def test_a_budget_outside_zero_to_one_is_an_error(value):
    with pytest.raises(UserError, match="0.0 to 1.0"):
        burnish.compile(nn.Linear(2, 2), options={"memory_budget": value})


def test_it_is_read_from_the_environment():
    assert from_environment({"BURNISH_MEMORY_BUDGET": "0.5"}).memory_budget == 0.5
