"""Cumulative sums, products and extrema by own loops: equal to eager to the bit."""

import pytest
import torch

from ..seeding import seed
from .compare_calls import equal_calls

NAN, INF = float("nan"), float("inf")

OPERATORS = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": lambda x, dim: tuple(torch.cummax(x, dim)),
    "cummin": lambda x, dim: tuple(torch.cummin(x, dim)),
}


def numbers(*shape, dtype=torch.float32):
    seed(len(shape))
    if dtype is torch.bool:
        return torch.rand(shape) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype is torch.uint8 else -5, 6, shape).to(dtype)
    return (torch.randn(shape) * 1.1).to(dtype)


def same_bits(fn, *inputs, ways=("native", "library")):
    """Stronger than the judge of `equal_calls`: eager's order, eager's accumulators."""
    equal_calls(fn, *inputs, ways=ways)
    from .compare_calls import compiled_with

    got, want = compiled_with(fn, *inputs)(*inputs), fn(*inputs)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_along_each_dimension(name, dim):
    # Extremes along rows are left to eager, whose kernel is faster.
    is_left = name in ("cummax", "cummin") and dim in (2, -1)
    same_bits(lambda x: OPERATORS[name](x, dim), numbers(7, 33, 5), ways=("library",) if is_left else ("native",))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8], ids=str
)
def test_in_each_dtype(name, dtype):
    same_bits(lambda x: OPERATORS[name](x, 1), numbers(9, 40, dtype=dtype))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("given", [torch.bool, torch.int32, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("asked", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int16], ids=str)
def test_with_an_explicit_dtype(name, given, asked):
    operator = OPERATORS[name]
    same_bits(lambda x: operator(x, 0, dtype=asked), numbers(12, 6, dtype=given))


@pytest.mark.parametrize("name", OPERATORS)
def test_nan_and_infinities_propagate_from_their_position(name):
    x = numbers(4, 12)
    x[0, 3], x[1, 2], x[1, 7], x[2, 0], x[3, 5], x[3, 6] = NAN, INF, -INF, NAN, NAN, NAN
    same_bits(lambda x: OPERATORS[name](x, 1), x)
    same_bits(lambda x: OPERATORS[name](x, 0), x)


def test_of_equal_values_the_last_is_the_greatest():
    x = torch.tensor([[1.0, 1.0, 0.0, 1.0, -INF], [-INF, -INF, NAN, 2.0, NAN]])
    for name in ("cummax", "cummin"):
        same_bits(lambda x, operator=OPERATORS[name]: operator(x, 0), x.t().contiguous(), ways=("native",))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (0, 3), (1, 5), (5, 1)], ids=str)
def test_of_little_or_nothing(name, shape):
    equal_calls(lambda x: OPERATORS[name](x, -1), numbers(*shape))


@pytest.mark.parametrize("name", OPERATORS)
def test_of_tensors_with_other_strides(name):
    operator = OPERATORS[name]
    x = numbers(6, 10, 8)
    for shown in (x.transpose(0, 2), x[:, ::2], x[..., 3], x[:1].expand(4, 10, 8), x.permute(1, 2, 0)[2:]):
        same_bits(lambda x: operator(x, 0), shown)
        same_bits(lambda x: operator(x.flip(0), 1), shown)


PROGRAMS = {
    "a mask's positions": lambda x: (x > 0).cumsum(1) - 1,
    "after softmax": lambda x: torch.softmax(x, 1).cumsum(1) > 0.7,
    "of itself": lambda x: x.cumsum(1).cumsum(1),
    "summed again": lambda x: x.cumsum(1).sum(1),
    "over the whole": lambda x: x.cumsum(1) / x.sum(1, keepdim=True),
    "over its own greatest": lambda x: x.cumsum(1) / x.cumsum(1).abs().amax(1, keepdim=True),
    "in another direction then": lambda x: x.cumsum(0).cumsum(1) + x.cumsum(1),
    "from behind": lambda x: x.flip(1).cumsum(1).flip(1),
    "of parts": lambda x: torch.cat([x, x * 2], 1).cumsum(1),
    "written in place": lambda x: x.mul_(2).cumsum_(1),
    "of a part in place": lambda x: (x[:, 3:].cumsum_(0), x + 1),
    "as an index": lambda x: torch.gather(x, 1, (x > 0).cumsum(1).clamp(max=x.shape[1] - 1)),
    "values and where": lambda x: (x.cummax(1).values - x, x.cummin(1).indices * 2),
    "shifted": lambda x: torch.nn.functional.pad(x.cumsum(1), (1, 0))[:, :-1] + x,
    "several readers": lambda x: (x.cumsum(1), x.cumsum(1) * 2, x.cumsum(1).exp()),
    "reshaped": lambda x: x.cumsum(1).reshape(-1).cumsum(0),
    "and the row's mean": lambda x: (x.cumsum(1) - x.mean(1, keepdim=True)) * x.cumsum(1),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", [(5, 20), (16, 33), (64, 8)], ids=str)
def test_within_a_program(name, shape):
    equal_calls(PROGRAMS[name], numbers(*shape), ways=("native",))


@pytest.mark.parametrize("shape", [(40_000,), (3, 30_000), (30_000, 3), (300, 300)], ids=str)
def test_of_much(shape):
    same_bits(lambda x: x.cumsum(0) * 2, numbers(*shape))


def test_threads_share_the_rows():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        same_bits(lambda x: x.cumsum(1), numbers(123, 5000))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_gathered_by_indices_are_scanned_separately(name):
    """Rows side by side as scalars: every one of them has an index to be looked up by."""
    picked = torch.tensor([4, 0, 5, 2])
    same_bits(lambda x, rows: OPERATORS[name](x.index_select(1, rows), 0), numbers(3, 6), picked)
