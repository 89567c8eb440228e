"""Row gradients of embeddings, added in place to an existing gradient."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish

from ..recorded_events import recorded

WORDS, WIDTH = 50, 16


class Tied(nn.Module):
    """Weights that embed, twice, and are the last layer as well."""

    def __init__(self, padding=None, scaled=False, dtype=torch.float32):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=padding, scale_grad_by_freq=scaled)
        self.inner, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.last.weight = self.embed.weight
        self.to(dtype)

    def forward(self, words, more):
        logits = self.last(F.gelu(self.inner(self.embed(words)))).flatten(0, 1)
        return F.cross_entropy(logits, words.flatten()) + self.embed(more).sin().sum()


def compared(model):
    """Eager's gradients and ours, and the steps of backward."""
    torch.manual_seed(0)
    inputs, found = (torch.randint(0, WORDS, (4, 8)), torch.tensor([3, 3, 0, 49, 3])), []
    with recorded("loops", datum="plan") as plans:
        compiled = burnish.compile(model)
        for fn in (model, compiled, compiled):
            model.zero_grad(set_to_none=True)
            fn(*inputs).backward()
            found.append([p.grad for p in model.parameters()])
    return found[0], found[2], [str(step) for step in plans[-1].steps]


@pytest.mark.parametrize("padding", [None, 0, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tied_weights_have_eagers_gradients_in_place(padding, dtype):
    expected, got, steps = compared(Tied(padding, dtype=dtype))
    torch.testing.assert_close(got, expected)
    assert sum("index_add" in step and "in_place=None" not in step for step in steps) == 2
    assert not any("embedding_dense_backward" in step for step in steps)


@pytest.mark.parametrize("model", [Tied(scaled=True), Tied(dtype=torch.bfloat16)], ids=["scaled", "bfloat16"])
def test_others_stay_sums_of_matrices(model):
    expected, got, steps = compared(model)
    torch.testing.assert_close(got, expected, atol=5e-3, rtol=2e-2)
    assert any("embedding_dense_backward" in step for step in steps)


def test_gradients_with_other_readers_are_not_overwritten():
    def fn(x):
        there = x.t() @ x
        rows = torch.ops.aten.embedding_dense_backward(x, torch.arange(8), WIDTH, -1, False)
        return there + rows, there * 2, there

    x, compiled = torch.randn(8, WIDTH), burnish.compile(fn)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), fn(x))
