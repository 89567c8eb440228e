"""Whole programs with kernels as a GPU would get them, against eager: forward, backward, and steps of training."""

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

import burnish

from .machine import interpreted


def same(fn, *args, fewest=1):
    """Compiled with interpreted kernels, at least so many of them, it gives what eager gives."""
    want = fn(*args)
    with interpreted() as ran:
        compiled = burnish.compile(fn, fullgraph=True)
        compiled(*args)  # captured: the operators run one by one
        got = compiled(*args)
    assert len(ran) >= fewest, ran
    torch.testing.assert_close(got, want)
    return ran


def test_elements_of_several_shapes_and_types():
    x, y = torch.randn(5, 33), torch.randn(33)
    same(lambda x, y: (torch.sin(x) * y + 1, (x > y).sum(), torch.nn.functional.gelu(x.to(torch.bfloat16))), x, y)
    same(lambda x: (x // 3, x % 3, x << 1, ~x), torch.arange(-20, 20))


def test_norms_softmax_and_their_likes_are_one_kernel_each():
    x, w, b = torch.randn(6, 100), torch.randn(100), torch.randn(100)
    assert len(same(lambda x: torch.softmax(x, -1), x)) == 1
    assert len(same(lambda x: torch.nn.functional.layer_norm(x, (100,), w, b), x)) == 1
    same(lambda x: torch.log_softmax(x, 0), x)
    same(lambda x: torch.nn.functional.group_norm(x.view(2, 6, 50), 3), x)
    same(lambda x: x.cumsum(1), x)
    same(lambda x: (x.argmax(1), x.max(0), x.var(1), x.norm()), x)


def test_a_long_row_is_walked_in_steps_and_a_very_long_one_in_parts():
    x = torch.randn(2, 20_000)
    same(lambda x: torch.softmax(x, -1), x)
    same(lambda x: x.sum(), torch.randn(1 << 17))


def test_views_joins_and_stores_into_inputs():
    def f(x, y):
        z = torch.cat([x.t() * 2, y[:, :3]], 1)
        y[1:3] += 1
        return z, torch.nn.functional.pad(x, (1, 2)), y.transpose(0, 1).reshape(-1)

    x, y = torch.randn(3, 4), torch.randn(4, 5)
    want = f(x, first := y.clone())
    with interpreted():
        compiled = burnish.compile(f, fullgraph=True)
        compiled(x, y.clone())
        got = compiled(x, second := y.clone())
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(first, second)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def test_forward_and_backward_of_a_block():
    block, x = Block(), torch.randn(3, 7, 16)
    want = torch.autograd.grad(block(x).pow(2).sum(), block.parameters())
    with interpreted() as ran:
        compiled = burnish.compile(block)
        compiled(x)
        got = torch.autograd.grad(compiled(x).pow(2).sum(), block.parameters())
    assert len(ran) >= 3
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_steps_of_training_in_one_graph(optimizer):
    def trained(compile):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        opt = optimizer(model.parameters(), lr=0.05)

        def step(x, y):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        run = compile(step)
        x, y = torch.randn(12, 8), torch.randint(0, 4, (12,))
        return [run(x, y).item() for _ in range(4)], list(model.parameters())

    want = trained(lambda fn: fn)
    with interpreted() as ran:
        got = trained(burnish.compile)
    assert ran
    torch.testing.assert_close(got, want)


def test_a_function_that_cannot_be_printed_stays_with_the_library():
    x = torch.rand(10, dtype=torch.float64)
    with interpreted() as ran:
        compiled = burnish.compile(lambda x: torch.lgamma(x) * 2, fullgraph=True)
        compiled(x)
        got = compiled(x)
    torch.testing.assert_close(got, torch.lgamma(x) * 2)
    assert len(ran) == 1
