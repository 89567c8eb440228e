"""Batch norm in training: statistics as exact as eager's for all inputs, and little saved for backward."""

import copy

import pytest
import torch
from torch import nn

import burnish
from burnish.settings import patch

SHAPE = (4, 6, 20, 20)


def usual():
    return torch.randn(SHAPE)


def far_from_zero():
    return torch.randn(SHAPE) * 1e-2 + 1e3


def all_equal():
    return torch.full(SHAPE, 12345.678)


def one_outlier_first():
    x = torch.randn(SHAPE) * 1e-3
    x[0, :, 0, 0] = 1e5
    return x


def one_outlier_last():
    x = torch.randn(SHAPE) * 1e-3 + 7
    x[-1, :, -1, -1] = -1e5
    return x


def one_nan():
    x = torch.randn(SHAPE)
    x[1, 2, 3, 4] = float("nan")
    return x


def one_infinity():
    x = torch.randn(SHAPE)
    x[0, 1, 0, 0] = float("inf")
    return x


def trained(module, x, tangent, run):
    """The result, all gradients, and the running statistics."""
    x = x.clone().requires_grad_()
    y = run(x)
    y.backward(tangent.to(y.dtype))
    return [y.detach(), x.grad, *[p.grad for p in module.parameters()], module.running_mean, module.running_var]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("numbers", [usual, far_from_zero, all_equal, one_outlier_first, one_outlier_last])
def test_batch_norm_is_as_near_to_double_precision_as_eager(numbers, memory_format):
    x, tangent = (x.contiguous(memory_format=memory_format) for x in (numbers(), torch.randn(SHAPE)))
    module = nn.BatchNorm2d(SHAPE[1])
    nn.init.uniform_(module.weight)
    exact, eager, mine = copy.deepcopy(module).double(), copy.deepcopy(module), copy.deepcopy(module)
    want = trained(exact, x.double(), tangent, exact)
    near = trained(eager, x, tangent, eager)
    with patch(never_slower=False, on_error="raise"):
        found = trained(mine, x, tangent, burnish.compile(mine))
    for a, b, c in zip(want, near, found, strict=True):
        off, allowed = ((part - a).abs().max() for part in (c, b))
        assert off <= 2 * allowed + 1e-6 * a.abs().max()


@pytest.mark.parametrize("numbers", [one_nan, one_infinity])
def test_a_channel_with_no_finite_statistics_is_eagers(numbers):
    x, tangent = numbers(), torch.randn(SHAPE)
    eager, mine = nn.BatchNorm2d(SHAPE[1]), nn.BatchNorm2d(SHAPE[1])
    want = trained(eager, x, tangent, eager)
    with patch(never_slower=False, on_error="raise"):
        found = trained(mine, x, tangent, burnish.compile(mine))
    for a, b in zip(want, found, strict=True):
        assert torch.equal(a.isnan(), b.isnan())
        torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.transpose(2, 3), lambda x: x[..., 1:]])
def test_an_infinite_weight_is_eagers_in_whatever_layout(view):
    x = view(torch.randn(SHAPE))
    module = nn.BatchNorm2d(SHAPE[1]).eval()
    nn.init.constant_(module.weight, float("inf"))
    module.running_mean.copy_(torch.randn(SHAPE[1]))
    with patch(never_slower=False, on_error="raise"), torch.no_grad():
        compiled = burnish.compile(module)
        for _ in range(3):
            assert torch.equal(compiled(x).isnan(), module(x).isnan())


def test_only_the_result_of_the_convolution_is_saved_not_the_normalized_one():
    module = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    x = torch.randn(4, 8, 24, 24, requires_grad=True)
    with patch(never_slower=False, on_error="raise"):
        run = burnish.compile(module)
        run(x)  # recorded, by eager's kernels
        y = run(x)
        node = y.grad_fn  # torch 2.11 frees saved tensors with the node's result
    large = [part for part in (*node.kept, *node.saved_tensors) if part.numel() >= x.numel()]
    assert len(large) == 3, "the input, perhaps in another layout, the convolution's result and the rectified one"
    assert any(torch.allclose(part, module[0](x), atol=1e-5) for part in large if part.shape == x.shape)
