"""SparseAdam in a compiled step: its update is a node, since the number of values in a gradient depends on the data."""

import pytest
import torch
from torch import nn
from torch.optim import SparseAdam

from ..native.compare_training import alike
from .training_harness import trained_alike


def world(**options):
    def build(compiler):
        first, second, head = nn.Embedding(10, 4, sparse=True), nn.EmbeddingBag(6, 4, sparse=True), nn.Linear(4, 2)
        groups = [{"params": first.parameters(), "lr": 0.05}, {"params": second.parameters()}]
        optimizer = SparseAdam(groups, lr=0.1, **options)

        def train(at, uses_second):
            def closure():
                optimizer.zero_grad()
                rows = first(at)
                if uses_second:
                    rows = torch.cat([rows, second(at.clamp(max=5)[None])])
                loss = head(rows).square().sum()
                loss.backward()
                return loss

            optimizer.param_groups[0]["lr"] *= 0.9
            return optimizer.step(closure)

        return compiler(train), (first, second, head, optimizer)

    return build


def places(i):
    """Some rows more than once; none in one step. The second table has no gradient at first."""
    return torch.full((5,), 7) if i == 3 else torch.randint(0, 10, (0 if i == 6 else 5,)), i > 4


@pytest.mark.parametrize("options", [{}, {"maximize": True, "betas": (0.5, 0.9)}], ids=str)
def test_a_sparse_step_is_one_graph(options):
    seen = trained_alike(world(**options), places, steps=14)
    assert (seen.breaks, seen.given_up) == ([], [])


@pytest.mark.falls_back("refused")  # graphs that get sparse gradients
def test_a_sparse_step_by_our_backend():
    seen = alike(world(), places, steps=14)
    assert (seen.breaks, seen.given_up) == ([], [])


def test_a_dense_gradient_is_an_error_as_in_eager():
    def build():
        model = nn.Linear(3, 3)
        optimizer = SparseAdam(model.parameters())

        def train(x):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        return train, (model, optimizer)

    trained_alike(build, lambda i: (torch.ones(2, 3),), steps=3)


def test_an_error_in_one_update_leaves_those_before():
    def build():
        first, second = nn.Embedding(4, 3, sparse=True), nn.Embedding(4, 3, sparse=True)
        optimizer = SparseAdam([first.weight, second.weight], lr=0.1)
        calls = []

        def train(at):
            optimizer.zero_grad()
            (first(at).sum() + second(at).square().sum()).backward()
            calls.append(1)
            if len(calls) > 2:
                optimizer.state[second.weight]["exp_avg"] = torch.zeros(2, 3)
            optimizer.step()

        return train, (first, second, optimizer)

    trained_alike(build, lambda i: (torch.tensor([1, 3]),), steps=6)
