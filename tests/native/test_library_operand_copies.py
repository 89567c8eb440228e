"""Operands that a library would copy row by row are copied in the graph, where the copy is planned."""

import pytest
import torch
from torch import nn

import burnish
from burnish.schedule.library import choose_calls
from burnish.schedule.library.autotune_library_calls import candidates
from burnish.schedule.plan_steps import Call

from ..recorded_events import recorded

ROWS, WIDE = 512, 2048


@pytest.fixture
def onednn_only(monkeypatch):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("there is no oneDNN in this torch")

    def choose(spec, **_):
        candidate = next(c for c in candidates(spec) if c.name == "onednn")
        return choose_calls.Choice(candidate, 1e-9, {candidate.name: 1e-9})

    monkeypatch.setattr(choose_calls, "choose", choose)


def training(net):
    def train(x):
        net.zero_grad()
        net(x).square().mean().backward()

    return train


def nets():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(WIDE, WIDE), nn.GELU(), nn.Linear(WIDE, WIDE, bias=False))
    other = nn.Sequential(nn.Linear(WIDE, WIDE), nn.GELU(), nn.Linear(WIDE, WIDE, bias=False))
    other.load_state_dict(net.state_dict())
    return net, other


def test_gradients_of_weights_are_made_of_copies_in_the_graph(onednn_only):
    net, other = nets()
    x = torch.randn(ROWS, WIDE)
    with recorded("loops", datum="plan") as plans:
        train = burnish.compile(training(net), fullgraph=True)
        train(x), train(x)
    training(other)(x)
    calls = [step.node for plan in plans for step in plan.steps if isinstance(step, Call)]
    products = [node for node in calls if getattr(node.args[0], "name", None) == "onednn"]
    assert any(node.args[0].rows for node in products)
    assert all(node.args[1][0].type.is_contiguous for node in products), "torch copies it again"
    for mine, its in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, its.grad)
