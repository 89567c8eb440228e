"""Long float sums are no less accurate than eager's."""

import pytest
import torch

from burnish.codegen.llvm.compile_to_machine_code import compile_kernel

from . import example_kernels as examples
from .run_kernel import MACHINES, compiled


def root_mean_square(x):
    return x.pow(2).mean().sqrt().item()


@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
@pytest.mark.parametrize("shape", [(500, 100), (500, 1000), (100, 30_000), (20, 1_000_000)])
def test_the_error_of_row_sums_is_at_most_twice_eagers(shape, draw):
    torch.manual_seed(0)
    x, out = draw(shape), torch.empty(shape[0])
    compile_kernel(examples.row_sum(*shape))(x.data_ptr(), out.data_ptr())
    exact = x.double().sum(1)
    assert root_mean_square(out - exact) <= 2 * root_mean_square(x.sum(1) - exact)


@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
@pytest.mark.parametrize("shape", [(100, 500), (1000, 500), (30_000, 200), (300_000, 32)])
def test_the_error_of_column_sums_is_at_most_twice_eagers(shape, draw):
    torch.manual_seed(0)
    x, out = draw(shape), torch.empty(shape[1])
    compile_kernel(examples.column_sum(*shape))(x.data_ptr(), out.data_ptr())
    exact = x.double().sum(0)
    assert root_mean_square(out - exact) <= 2 * root_mean_square(x.sum(0) - exact)


@pytest.mark.parametrize("machine", [machine for machine in MACHINES if machine != "triton"])
@pytest.mark.parametrize("shape", [(16, 2048), (17, 1024), (100, 512), (256, 2048), (1100, 768)])
def test_columns_in_strips(shape, machine):
    torch.manual_seed(0)
    x, grad, shift = torch.randn(shape), torch.randn(shape), torch.randn(shape[1])
    stored, sums, most = grad.clone(), torch.empty(shape[1]), torch.empty(shape[1])
    compiled(examples.column_gradient(*shape), machine)(*(y.data_ptr() for y in (x, stored, shift, sums, most)))

    def value(x, grad):
        return grad * (1 + (x * 0.5).erf() + x * (x * x * -0.5).exp())

    exact, eager = value(x.double(), grad.double()), value(x, grad)
    torch.testing.assert_close(stored.double(), exact, rtol=1e-5, atol=1e-5)
    assert torch.equal(most, stored.amax(0))
    error = root_mean_square(sums - (stored.double().sum(0) + shift))
    assert error <= 2 * root_mean_square((eager.sum(0) + shift) - (eager.double().sum(0) + shift))


def test_the_error_of_a_row_of_ten_million_is_at_most_twice_eagers():
    torch.manual_seed(0)
    kernel = compile_kernel(examples.row_sum(1, 10_000_000))
    ours, eager = [], []
    for _ in range(8):
        x, out = torch.rand(10_000_000), torch.empty(1)
        kernel(x.data_ptr(), out.data_ptr())
        exact = x.double().sum()
        ours.append(out.double() - exact)
        eager.append(x.sum().double() - exact)
    assert root_mean_square(torch.stack(ours)) <= 2 * root_mean_square(torch.stack(eager))


def test_a_sum_over_two_variables_is_summed_in_blocks_too():
    torch.manual_seed(0)
    x, out = torch.rand(2000, 8, 49), torch.empty(8)
    kernel = examples.reduction("sum", (8, 2000, 49), 1, (49, 8 * 49, 1))
    compile_kernel(kernel)(x.data_ptr(), out.data_ptr())
    exact = x.double().sum((0, 2))
    assert root_mean_square(out - exact) <= 2 * root_mean_square(x.sum((0, 2)) - exact)


@pytest.mark.parametrize(("outer", "inner"), [(15, 7), (30, 8), (9, 13)])
def test_many_short_runs_are_summed_in_blocks(outer, inner):
    torch.manual_seed(0)
    # The runs are not contiguous, so that the two variables are not coalesced.
    x, out = torch.rand(outer, inner + 1, 4000), torch.empty(4000)
    kernel = examples.reduction("sum", (4000, outer, inner), 1, (1, (inner + 1) * 4000, 4000))
    compile_kernel(kernel)(x.data_ptr(), out.data_ptr())
    x = x[:, :inner]
    exact = x.double().sum((0, 1))
    assert root_mean_square(out - exact) <= 1.3 * root_mean_square(x.sum((0, 1)) - exact)
