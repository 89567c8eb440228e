"""Forward and backward take no more memory at their peak than in eager: as the allocator counts, and the arena."""

import pytest
import torch
from bench.intermediates import peak_of
from torch import nn
from torch.nn import functional as F

import burnish
from burnish import events

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


def test_what_backward_computes_again_comes_when_it_is_read():
    def fn(x, weights):
        for weight in weights:
            x = torch.tanh(x @ weight).exp()
        return x

    plans = []
    stop = events.subscribe(lambda event: event.kind == "loops" and plans.append(event.data["plan"]))
    weights = [torch.randn(32, 32).mul_(0.1).requires_grad_() for _ in range(4)]
    burnish.compile(fn)(torch.randn(64, 32), weights).sum().backward()
    stop()
    _, backward = plans
    made = {value: number for number, line in enumerate(backward.steps) for value in stored(line)}
    read = [(made[value], number) for number, line in enumerate(backward.steps) for value in read_by(line)
            if value in made]
    assert read and max(last - first for first, last in read) <= 6


def stored(line):
    return [line.buffers[at] for at in line.kernel.stored] if hasattr(line, "kernel") else []


def read_by(line):
    return line.node.operands if hasattr(line, "node") else getattr(line, "buffers", [])
