"""Operators whose operands overlap their target: eager's kernel if its element order matters, compiled otherwise."""

import itertools

import pytest
import torch

from burnish.lower.trace.detect_overlapping_writes import share_elements
from burnish.tensors.tensor_types import TensorType

from .compare_calls import equal_calls

MASK = torch.tensor([False, True] * 4)

ORDERED = {
    "shifted": lambda v: v[::2][1:].copy_(v[::2][:-1]),
    "shifted columns": lambda v: v.view(4, 4)[:, 1:].copy_(v.view(4, 4)[:, :-1]),
    "shifted product": lambda v: v[::2][1:].mul_(v[::2][:-1]),
    "less its first column": lambda v: v.view(4, 4).sub_(v.view(4, 4)[:, :1]),
    "of what is made inside": lambda v: (w := (v * 2)[::2], w[1:].copy_(w[:-1]))[0],
    "masked by itself": lambda v: v[:8].masked_scatter_(MASK, v[:8]),
    "masked and shifted": lambda v: v[1:9].masked_scatter_(MASK, v),
    "masked inside": lambda v: (v[:8] * 1).masked_scatter_(MASK, v[:8] * 1),
    "a product into its factor": lambda v: torch.mm(v.view(4, 4), v.view(4, 4), out=v.view(4, 4)),
    "a sum into its first row": lambda v: torch.sum(v.view(4, 4), 0, out=v[:4]),
    "gathered into itself": lambda v: torch.gather(v[::2], 0, torch.arange(7, -1, -1), out=v[::2]),
}
INSIDE = ("masked inside",)
"""Its two operands are different memory."""


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("name", ORDERED)
def test_results_that_depend_on_element_order_are_eagers(name):
    equal_calls(ORDERED[name], torch.arange(16.0), ways=("native", "library") if name in INSIDE else ("refused",))


PLAIN = {
    "itself": lambda v: (v.mul_(v), v.add_(v, alpha=2)),
    "columns beside": lambda v: v.view(4, 4)[:, :2].mul_(v.view(4, 4)[:, 2:]),
    "every other": lambda v: v[::2].copy_(v[1::2]),
    "a copy of the same": lambda v: v[1:].copy_(v[:-1].clone()),
    "running sums of itself": lambda v: v.cumsum_(0),
    "out beside": lambda v: torch.cumsum(v[:8], 0, out=v[8:]),
}


@pytest.mark.parametrize("name", PLAIN)
def test_results_independent_of_element_order_are_compiled(name):
    equal_calls(PLAIN[name], torch.arange(16.0) / 8, ways=("native", "library"))


def test_common_elements_are_found():
    strides = list(itertools.product((1, 2, 3), (1, 2, 3, 4), (1, 4, 6), (0, 1, 3, 5)))
    found = 0
    for (n, m, row, step), (k, j, other_row, other_step) in itertools.product(strides[::5], strides[::3]):
        a, b = (
            TensorType(shape, stride, torch.float32)
            for shape, stride in (((n, m), (row, step)), ((k, j), (other_row, other_step)))
        )
        for offset in (0, 1, 5, 9):
            elements = {row * i + step * c for i in range(n) for c in range(m)}
            others = {offset + other_row * i + other_step * c for i in range(k) for c in range(j)}
            assert share_elements(a, 0, b, offset) == bool(elements & others), (a, b, offset)
            found += bool(elements & others)
    assert found > 500
