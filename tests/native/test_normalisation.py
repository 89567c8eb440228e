"""Layer and group norms: accuracy of results near zero, and rows of equal numbers."""

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish.settings import patch

from .compare_calls import compiled_with, equal_calls

NORMS = {"layer norm": lambda x: F.layer_norm(x, x.shape[1:]), "group norm": lambda x: F.group_norm(x, 1, None, None)}


def error_near_zero(fn, run, x):
    """Results near zero show the accuracy of the mean: the mean error of each row, as a root mean square over all."""
    truth, found = fn(x.double()), run(x)
    near = truth.abs() < 0.03
    apart = torch.where(near, found.double() - truth, 0.0).flatten(1).sum(1) / near.flatten(1).sum(1)
    return apart.square().mean().sqrt().item()


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("size", [(7, 65), (3, 455), (68, 62)], ids=str)
@pytest.mark.parametrize("mean", [0.0, 0.05, 0.5, 3.0])
def test_a_long_row_s_mean_is_as_exact_as_eager_s(name, size, mean):
    fn = NORMS[name]
    torch.manual_seed(0)
    x = torch.randn(100, *size) + mean
    with torch.no_grad():
        assert error_near_zero(fn, compiled_with(fn, x), x) < 1.25 * error_near_zero(fn, fn, x)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("length", [64, 777, 4001])
def test_rows_of_equal_numbers_give_zero_at_any_magnitude(name, length):
    fn = NORMS[name]
    torch.manual_seed(0)
    x = (torch.rand(64, 1, 1) * torch.logspace(-3, 24, 64)[:, None, None]).expand(64, 1, length).contiguous()
    with torch.no_grad():
        assert torch.equal(compiled_with(fn, x)(x), torch.zeros_like(x))


def test_rows_of_numbers_too_large_to_square():
    torch.manual_seed(0)
    x = torch.randn(16, 500) * torch.logspace(10, 32, 16)[:, None] + torch.logspace(10, 32, 16)[:, None]
    equal_calls(lambda x: F.layer_norm(x, (500,)), x, ways=("native",))


AFFINE = {
    "layer norm": lambda x, weight, bias: F.layer_norm(x, (8,), weight, bias),
    "group norm": lambda x, weight, bias: F.group_norm(x, 2, weight, bias),
    "batch norm": lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True),
}


@pytest.mark.parametrize("name", AFFINE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_of_float32_parameters_are_not_rounded_to_the_data_s_dtype(name, dtype):
    torch.manual_seed(0)
    x, grad = (torch.randn(4, 8, 8).to(dtype) for _ in range(2))
    parameters = [torch.randn(8, requires_grad=True) for _ in range(2)]
    exact = [p.detach().double().requires_grad_() for p in parameters]
    right = torch.autograd.grad(AFFINE[name](x.double(), *exact), exact, grad.double())
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(AFFINE[name], backend="burnish")
        for _ in range(3):
            found = torch.autograd.grad(compiled(x, *parameters), parameters, grad)
    for a, b in zip(found, right, strict=True):
        assert a.dtype == torch.float32 and (a - b).abs().max() < 1e-5
