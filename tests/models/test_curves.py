"""Ten steps of training of the benchmark's models: the curve of losses is as near to double precision as eager's is."""

import copy

import pytest
import torch
from bench.models import FUNCTIONS, MODELS
from torch import nn

import burnish
from burnish.settings import patch

STEPS = 10
NEAR = 1e-6
"""Of the loss: where eager is nearer to the reference than rounding of the loss itself can be told from luck."""


def tensors_of(tree):
    if isinstance(tree, torch.Tensor):
        return [tree] if tree.is_floating_point() else []
    parts = tree.values() if hasattr(tree, "values") else tree if isinstance(tree, (tuple, list)) else ()
    return [x for part in parts for x in tensors_of(part)]


def converted(tree, dtype):
    if isinstance(tree, torch.Tensor):
        return tree.to(dtype) if tree.is_floating_point() else tree
    if isinstance(tree, dict):
        return {name: converted(part, dtype) for name, part in tree.items()}
    return type(tree)(converted(part, dtype) for part in tree) if isinstance(tree, (tuple, list)) else tree


def curve(module, args, kwargs, compiler=lambda function: function):
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    def train(*args, **kwargs):
        optimizer.zero_grad()
        loss = sum(x.square().mean() for x in tensors_of(module(*args, **kwargs)))
        loss.backward()
        optimizer.step()
        return loss.detach()
    run = compiler(train)
    return torch.stack([run(*args, **kwargs).double() for _ in range(STEPS)])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name not in FUNCTIONS])
def test_ten_losses_are_as_near_to_double_precision_as_eagers(name):
    module, args, kwargs = MODELS[name]()
    if not isinstance(module, nn.Module):
        pytest.skip("has no parameters")
    exact = curve(copy.deepcopy(module).double(), converted(args, torch.float64), converted(kwargs, torch.float64))
    eager = curve(copy.deepcopy(module), args, kwargs)
    with patch(never_slower=False, on_error="raise"):
        found = curve(copy.deepcopy(module), args, kwargs, burnish.compile)
    off, allowed = ((x - exact).abs().max() for x in (found, eager))
    assert off <= 2 * max(allowed, NEAR * exact.abs().max()), f"off by {off}, eager by {allowed}, of {exact[0]}"
