"""Tensors that torch's own code reshapes in place become views of their memory."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from .compare_calls import equal_calls
from .compare_training import alike

PROGRAMS = {
    "a row through a linear layer without bias": lambda x: F.linear(x[0].sin(), x[:3]) * 2,
    "a quantile": lambda x: torch.quantile(x.sin(), 0.3, 1) * 2,
    "several quantiles": lambda x: torch.quantile(x * 2, torch.tensor([0.1, 0.9]), dim=0, keepdim=True).sum(0),
    "a quantile beside NaN": lambda x: x.log().nanquantile(0.5, -1) + 1,
}


class Called(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.add(func)
        return func(*args, **(kwargs or {}))


with Called() as called:
    torch.quantile(torch.ones(3), 0.3)
QUANTILES_BRANCH = torch.ops.aten.equal.default in called.operators
"""Whether torch's code compares the data of two tensors and goes on in one of two ways, as in 2.11."""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.falls_back(*["refused"] * QUANTILES_BRANCH, only=".*quantile.*")
def test_in_place_reshapes_are_compiled(name):
    ways = ("refused",) if QUANTILES_BRANCH and "quantile" in name else ("native", "library")
    equal_calls(PROGRAMS[name], torch.randn(4, 5), ways=ways)


LEARNED = {
    "a row through a linear layer without bias": lambda x: F.linear(x[0].sin(), x[:3]),
    "a grid": lambda x: F.affine_grid(x[:2, :3].expand(2, 2, 3), [2, 3, 4, 5], align_corners=False).sin(),
}


@pytest.mark.parametrize("name", LEARNED)
def test_its_gradients_are_compiled(name):
    def build(compiler):
        run = compiler(LEARNED[name])

        def step(x):
            run(x.requires_grad_()).sum().backward()
            return x.grad

        return step, ()

    seen = alike(build, lambda i: (torch.randn(4, 5),))
    assert seen.refused == [] and seen.planned
