"""Weights packed for own kernels: the position of each number, and packing without further copies."""

import pytest
import torch
from bench.intermediates import peak_of

from burnish.tensors.weight_packing import Panels, as_pairs

WIDTH = 16


def packed_slowly(panels, weight):
    """Panel after panel, and in each the outputs side by side, step by step of the sum."""
    rows = weight.permute(0, 2, 3, 1).flatten(1) if weight.ndim == 4 else weight
    widths = [panels.width] * panels.full + [panels.last]
    found = []
    for start, depth in panels.parts:
        output = 0
        for width in widths:
            for step in range(start, start + depth):
                found += [rows[row, step].item() if row < len(rows) else 0.0 for row in range(output, output + width)]
            output += width
    return torch.tensor(found, dtype=weight.dtype)


WEIGHTS = {
    "whole panels": (torch.randn(32, 6), 2, 0),
    "a last one that is not full": (torch.randn(37, 6), 2, 8),
    "only a last one": (torch.randn(5, 6), 0, 8),
    "a convolution": (torch.randn(37, 3, 2, 5), 2, 8),
    "a convolution, its channels last": (torch.randn(37, 3, 2, 5).contiguous(memory_format=torch.channels_last), 2, 8),
    "transposed": (torch.randn(6, 37).t(), 2, 8),
    "every second row": (torch.randn(74, 6)[::2], 2, 8),
}


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("name", WEIGHTS)
def test_each_number_is_where_the_kernels_read_it(name, parts):
    weight, full, last = WEIGHTS[name]
    depth = weight[0].numel()
    cuts = [depth * k // parts for k in range(parts + 1)]
    panels = Panels(tuple((a, b - a) for a, b in zip(cuts, cuts[1:], strict=False)), WIDTH, full, last)
    (packed,) = panels(weight)
    assert packed.dtype == weight.dtype and torch.equal(packed, packed_slowly(panels, weight))


@pytest.mark.parametrize("shape", [(256, 128, 3, 3), (256, 1152)])
def test_packing_needs_no_memory_but_the_packed_weight(shape):
    weight = torch.randn(shape)
    panels = Panels(((0, weight[0].numel()),), WIDTH, shape[0] // WIDTH, 0)
    panels(weight)
    assert peak_of(lambda: panels(weight)) < 1.1 * weight.nbytes


@pytest.mark.parametrize("weight", [(1, 16, 2, 0), (1, 16, 2, 1), (3, 4, 8, 1), (1, 6, 1, 3)], ids=str)
def test_pairs_of_a_weight_in_any_layout(weight):
    outputs, inputs, step, offset = weight
    layout = torch.arange(200, dtype=torch.bfloat16).as_strided((outputs, inputs), (inputs * step, step), offset)
    assert torch.equal(as_pairs(layout).view(torch.bfloat16), layout)
