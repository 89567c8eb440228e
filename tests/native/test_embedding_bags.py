"""Bags of embeddings in training: sums, means and maxima of rows, with and without weights of their own."""

import pytest
import torch
from torch import nn

from .compare_training import alike


class Bags(nn.Module):
    def __init__(self, **kinds):
        super().__init__()
        self.bags = nn.EmbeddingBag(20, 6, **kinds)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 12))
        self.head = nn.Linear(6, 3)

    def forward(self, words, starts):
        weights = self.scale[: len(words)] if self.bags.mode == "sum" else None
        return self.head(self.bags(words, starts, weights).tanh()).relu()


KINDS = {
    "sums": {"mode": "sum"},
    "sums without a word": {"mode": "sum", "padding_idx": 3},
    "sums of short rows": {"mode": "sum", "max_norm": 1.0},
    "sums that end where the words end": {"mode": "sum", "include_last_offset": True},
    "means": {"mode": "mean"},
    "means by frequency": {"mode": "mean", "scale_grad_by_freq": True},
    "maxima": {"mode": "max"},
}


def training(kinds):
    def build(compiler):
        model = Bags(**kinds)
        run = compiler(model)

        def step(words, starts):
            model.zero_grad()
            run(words, starts).square().sum().backward()

        return step, (model,)

    return build


@pytest.mark.parametrize("lengths", [(8,), (5, 6, 7, 8, 9, 10, 11, 12)], ids=["one length", "many lengths"])
@pytest.mark.parametrize("kind", KINDS)
def test_training_with_bags_of_embeddings_is_compiled(kind, lengths):
    def data(i):
        length = lengths[i % len(lengths)]
        ends = [length] if "include_last_offset" in KINDS[kind] else []
        return torch.randint(0, 20, (length,)), torch.tensor([0, 2, 2, 4, *ends])

    seen = alike(training(KINDS[kind]), data, steps=12)
    assert (seen.breaks, seen.refused, seen.segments) == ([], [], min(len(lengths), 2))
