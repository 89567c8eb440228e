"""Pooling as loops: equal to eager to the bit, in both memory formats, with padding, dilation and ceil mode."""

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish.settings import patch

from ..recorded_events import recorded
from .compare_calls import compiled_with, equal_calls

NAN, INF = float("nan"), float("inf")

POOLS = {
    "maximum with a border": lambda x: F.max_pool2d(x, 3, 2, 1),
    "maximum without one": lambda x: F.max_pool2d(x, 2),
    "maximum of a wide window": lambda x: F.max_pool2d(x, (2, 5), (1, 3), (1, 0)),
    "maximum over gaps": lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2),
    "maximum that hangs over": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "mean": lambda x: F.avg_pool2d(x, 2),
    "mean with a border": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "mean by another number": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
    "mean without its border": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "mean that hangs over": lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "mean to a size": lambda x: F.adaptive_avg_pool2d(x, (4, 6)),
    "mean to an uneven size": lambda x: F.adaptive_avg_pool2d(x, (5, 5)),
    "maximum along a line": lambda x: F.max_pool1d(x[0], 4, 2, 1),
}
BY_THE_LIBRARY = ("mean without its border", "mean that hangs over", "mean to an uneven size")


def image(dtype=torch.float32, format=torch.contiguous_format):
    return torch.randn(2, 5, 12, 18).to(dtype).to(memory_format=format)


def same_bits(fn, x, ways=("native", "library")):
    equal_calls(fn, x, ways=ways)
    got, want = compiled_with(fn, x)(x), fn(x)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert got.stride() == want.stride()


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_pooling_equals_eager(name, format):
    same_bits(POOLS[name], image(format=format), ways=("library",) if name in BY_THE_LIBRARY else ("native", "library"))


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_in_each_dtype(name, dtype):
    same_bits(POOLS[name], image(dtype))


@pytest.mark.parametrize("has_gradient", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 2), (1, 4, 2), (2, 12, 3), (12, 3)], ids=str)
def test_maxima_along_a_strided_line(shape, has_gradient):
    """Contiguous in eager where no gradient flows; otherwise as the input is."""

    def pool(x):
        return F.max_pool1d(x.mT, 1, 2)

    x = torch.randn(shape, requires_grad=has_gradient)
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(pool, backend="burnish")
        for _ in range(3):
            got, want = compiled(x), pool(x)
            assert torch.equal(got, want) and got.stride() == want.stride()


def test_maxima_along_a_line_can_be_viewed():
    same_bits(lambda x: F.max_pool1d(x.mT, 2).view(-1), torch.randn(2, 6, 3), ways=("native",))


@pytest.mark.parametrize("number", [NAN, INF, -INF])
@pytest.mark.parametrize("name", ["maximum with a border", "mean with a border"])
def test_special_numbers_reach_all_windows_they_are_in(name, number):
    x = image()
    x[0, 1, 3, 4] = x[1, 2, 0, 0] = x[1, 4, 11, 17] = number
    same_bits(POOLS[name], x)


def test_a_window_of_nothing_but_minus_infinity():
    same_bits(POOLS["maximum with a border"], torch.full((1, 2, 6, 6), -INF))


def test_indices_are_eagers_if_they_are_used():
    x = image()
    x[0, 0, :4, :4] = 1.0
    equal_calls(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, ways=("library",))


def test_gradients_go_where_the_maximum_was():
    x = image().requires_grad_()
    (want,) = torch.autograd.grad(F.max_pool2d(x.relu(), 3, 2, 1).square().sum(), x)
    compiled = burnish.compile(lambda x: F.max_pool2d(x.relu(), 3, 2, 1).square().sum())
    for _ in range(3):
        (got,) = torch.autograd.grad(compiled(x), x)
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (1, 3, 2, 2), (3, 8, 8)])
def test_no_image_a_small_one_and_one_without_a_batch(shape):
    equal_calls(lambda x: F.max_pool2d(x * 2, 2), torch.randn(shape))


def test_the_loop_before_is_fused_into_it():
    x = image(format=torch.channels_last)
    with recorded("loops", datum="plan") as plans:
        compiled_with(lambda x: F.avg_pool2d(x * 2 + 1, 2).relu(), x)(x)
    plan = str(plans[-1])
    assert "avg_pool2d" not in plan and plan.count("kernel ") == 1
