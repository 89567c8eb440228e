"""Running reductions (cumulative sums and others) against torch, for this processor and for older ones."""

import pytest
import torch

from burnish.ops.scalar_ir import Access, cast, load, reduced
from burnish.schedule.loops.loop_ir import RUNNING, Kernel, Loop, Reduction, Stage, Store, print_kernel
from burnish.tensors.dtypes import DTYPES

from ..schedule.parse_loops import parse_kernel
from .run_kernel import MACHINES
from .test_example_kernels import launch

on_each_machine = pytest.mark.parametrize("machine", MACHINES)
each_shape = pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 17), (5, 16), (7, 100), (64, 64), (33, 130)])

TORCH = {
    "sum": lambda x, dim: x.cumsum(dim, dtype=x.dtype),
    "prod": lambda x, dim: x.cumprod(dim, dtype=x.dtype),
    "max": lambda x, dim: x.cummax(dim).values,
    "min": lambda x, dim: x.cummin(dim).values,
    "argmax": lambda x, dim: x.cummax(dim).indices,
    "argmin": lambda x, dim: x.cummin(dim).indices,
}


def along(op, extents, strides, dtype):
    """Over the last of two variables; x and the result have equal strides."""
    access = Access(0, 0, strides)
    made = Reduction(f"running_{op}", load(dtype, access))
    store = Store(Access(1, 0, strides), reduced(0, made.dtype))
    return Kernel(op, (dtype, made.dtype), frozenset({1}), (Loop(extents, 1, (Stage((made,), (store,)),)),))


def numbers(shape, dtype):
    torch.manual_seed(1)
    if not dtype.is_floating_point:
        return torch.randint(-3, 4, shape).to(dtype)
    made = torch.randint(-3, 4, shape).to(dtype) / 2
    if made.numel() > 20:
        # Two of each, to see which of equals is the last; a NaN only affects later elements of its own row.
        places = torch.randperm(made.numel())[:6]
        made.view(-1)[places] = torch.tensor([float("nan")] * 2 + [float("inf")] * 2 + [-float("inf")] * 2, dtype=dtype)
    return made


@on_each_machine
@each_shape
@pytest.mark.parametrize("op", sorted(TORCH))
@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "i32", "u8"])
def test_in_rows_and_in_columns(op, dtype, shape, machine):
    if dtype == "u8" and op in ("sum", "prod"):
        pytest.skip("wraps around: torch's own order of conversions is not what is tested")
    if machine == "triton" and (dtype in ("f64", "i32") or shape not in ((1, 17), (5, 16), (33, 130))):
        pytest.skip("its interpreter is slow: f64 and i32 are as f32 and i64 there, and other shapes as these")
    rows, length = shape
    x = numbers(shape, DTYPES[dtype]).abs() if dtype == "u8" else numbers(shape, DTYPES[dtype])
    for dim, strides in ((1, (length, 1)), (0, (1, rows))):
        given = x if dim else x.t().contiguous()
        kernel = along(op, shape, strides, dtype)
        want = TORCH[op](given, dim)
        got = torch.full_like(want, 77)
        launch(kernel, [given, got], machine)
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@on_each_machine
def test_running_result_is_used_and_reduced_in_the_same_pass(machine):
    """Ten times the running sum is stored, and its largest value once a row."""
    rows, length = 19, 40
    total = Reduction("running_sum", cast(load("f32", Access(0, 0, (length, 1))), "f64"))
    tenfold = cast(reduced(0, "f64"), "f32") * 10.0
    stage = Stage(
        (total, Reduction("max", tenfold)),
        (Store(Access(1, 0, (length, 1)), tenfold),),
        (Store(Access(2, 0, (1, 0)), reduced(1, "f32")),),
    )
    kernel = Kernel("k", ("f32", "f32", "f32"), frozenset({1, 2}), (Loop((rows, length), 1, (stage,)),))
    x = torch.randn(rows, length)
    got, most = torch.empty(rows, length), torch.empty(rows)
    launch(kernel, [x, got, most], machine)
    want = x.cumsum(1) * 10
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    torch.testing.assert_close(most, want.amax(1), rtol=0, atol=0)


@on_each_machine
def test_several_inner_variables_run_in_row_major_order(machine):
    total = Reduction("running_sum", load("f32", Access(0, 0, (12, 1, 3))))
    store = Store(Access(1, 0, (12, 4, 1)), reduced(0, "f32"))
    kernel = Kernel("k", ("f32", "f32"), frozenset({1}), (Loop((5, 3, 4), 1, (Stage((total,), (store,)),)),))
    x = torch.randint(-9, 9, (5, 4, 3)).float()
    got = torch.empty(5, 3, 4)
    launch(kernel, [x, got], machine)
    assert torch.equal(got, x.transpose(1, 2).reshape(5, 12).cumsum(1).view(5, 3, 4))


@pytest.mark.parametrize("op", sorted(RUNNING))
def test_is_printed_and_read_back(op):
    kernel = along(op.removeprefix("running_"), (4, 5), (5, 1), "f32")
    assert print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)
