"""A learned row written under a mask, like the mask token of speech and image models."""

import pytest
import torch
from torch import nn

from .compare_training import alike

ROWS = {
    "a row": ((4,), lambda x: torch.arange(6).view(2, 3) % 2 == 0),
    "a row of one": ((1, 4), lambda x: torch.arange(6).view(2, 3) > 3),
    "a number": ((), lambda x: x > 0),
    "a block": ((3, 4), lambda x: torch.tensor([False, True])),
    "nowhere": ((4,), lambda x: torch.zeros(2, 3, dtype=torch.bool)),
}


@pytest.mark.parametrize("name", ROWS)
def test_row_written_by_a_mask_is_trained_in_compiled_code(name):
    shape, mask_of = ROWS[name]

    def build(compiler):
        layer, row = nn.Linear(4, 4), nn.Parameter(torch.randn(shape))

        def written(x, mask):
            hidden = layer(x)
            hidden[mask] = row
            return hidden.sin() * 2

        run = compiler(written)

        def step(x):
            layer.zero_grad()
            row.grad = None
            out = run(x, mask_of(x))
            out.sum().backward()
            return out.detach(), row.grad

        return step, (layer,)

    seen = alike(build, lambda i: (torch.randn(2, 3, 4),))
    assert seen.refused == [] and seen.planned


@pytest.mark.falls_back("refused")
def test_rows_for_each_place_of_the_mask_are_as_in_eager():
    def build(compiler):
        rows = nn.Parameter(torch.randn(2, 4))

        def written(x, mask):
            hidden = x * 2
            hidden[mask] = rows
            return hidden.sin()

        run = compiler(written)

        def step(x):
            rows.grad = None
            run(x, torch.tensor([True, False, True])).sum().backward()
            return rows.grad

        return step, ()

    alike(build, lambda i: (torch.randn(3, 4),))
