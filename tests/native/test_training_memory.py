"""Forward and backward take no more memory at their peak than in eager: as the allocator counts, and the arena."""

import pytest
import torch
from bench.intermediates import peak_of
from torch import nn
from torch.nn import functional as F

import burnish
from burnish import events
from burnish.schedule.plan import Call, Launch

WIDTH = 128
ALLOWED = 1.02


class Layer(nn.Module):
    """Attention whose heads are copied for backward, and a gelu that is computed again there."""

    def __init__(self):
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.into(self.norm(x)).chunk(3, -1))
        weights = torch.softmax(q @ k.mT / 6, -1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(x)))


def step(fn, model, x):
    def call():
        model.zero_grad(set_to_none=True)
        fn(x).square().mean().backward()
    for _ in range(3):
        call()
    return call


@pytest.mark.parametrize("layers", [1, 6])
def test_layers_need_no_more_than_in_eager(layers):
    torch.manual_seed(0)
    model, x, plans = nn.Sequential(*(Layer() for _ in range(layers))), torch.randn(16, 128, WIDTH), []
    eager = peak_of(step(model, model, x))
    stop = events.subscribe(lambda event: event.kind == "loops" and plans.append(event.data["plan"]))
    call = step(burnish.compile(model, options={"never_slower": False}), model, x)
    stop()
    forward, backward = plans
    assert peak_of(call) + forward.arena + backward.arena <= ALLOWED * eager


def test_copies_that_backward_makes_come_when_they_are_read():
    plans = []
    stop = events.subscribe(lambda event: event.kind == "loops" and plans.append(event.data["plan"]))
    burnish.compile(nn.Sequential(*(Layer() for _ in range(6))))(torch.randn(8, 64, WIDTH)).sum().backward()
    stop()
    _, backward = plans
    first = next(number for number, step in enumerate(backward.steps) if isinstance(step, Call))
    before = [step for step in backward.steps[:first] if isinstance(step, Launch)]
    assert len(before) <= 1, "not all layers' copies before the last layer's product"
