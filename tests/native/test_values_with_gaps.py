"""Intermediate values whose elements are not side by side in memory: each has memory for its gaps as well."""

import pytest
import torch

import burnish
from burnish.tensors.tensor_types import TensorType

ROWS, COLUMNS, START = 4, 44, 20


def two_scattered_slices(x, a, b):
    """`slice_scatter` keeps the strides of a slice: its result has the gaps of `x[:, 20:]`."""
    first = torch.slice_scatter(x[:, START:], a, 1, 0, 20)
    second = torch.slice_scatter(x[:, START:], b, 1, 0, 20)
    return first[:, -6:].sum(1), second[:, -6:].sum(1), first[:, :3].sum(1)


def scattered_columns(x, a, b):
    first = torch.select_scatter(x[:, START:], a[:, 0], 1, 2)
    second = torch.diagonal_scatter(x[:, START:], b[:, 1])
    return first[:, -6:].sum(1), second[:, -6:].sum(1), first[:, :3].sum(1)


def joined_then_scattered(x, a, b):
    n, m = x.shape[1], a.shape[1]
    return torch.slice_scatter(torch.cat([a, x], 1)[:, m:][:, :n], a, 1, 0, m)[:, n - 6 :].sum(1), b.sum(1)


def outcome(fn, columns, trains):
    torch.manual_seed(columns)
    given = [torch.randn(ROWS, size, requires_grad=trains) for size in (columns, 20, 20)]
    results = fn(*given)
    if trains:
        sum((part * torch.arange(1.0, 1 + part.numel())).sum() for part in results).backward()
    return [*results, *(x.grad for x in given if x.grad is not None)]


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(
    "fn,dynamic",
    [
        (two_scattered_slices, False),
        (two_scattered_slices, True),
        (scattered_columns, False),
        (joined_then_scattered, False),
        (joined_then_scattered, True),
    ],
)
def test_values_with_gaps_do_not_overwrite_each_other(fn, dynamic, trains):
    compiled = burnish.compile(fn, dynamic=dynamic)
    for columns in (COLUMNS, COLUMNS, COLUMNS + 3, COLUMNS + 9):
        wanted, found = outcome(fn, columns, trains), outcome(compiled, columns, trains)
        assert len(wanted) == len(found)
        for want, got in zip(wanted, found, strict=True):
            torch.testing.assert_close(got, want)
    assert burnish.was_compiled(compiled)


@pytest.mark.parametrize(
    "shape,stride,elements",
    [((4, 24), (24, 1), 96), ((4, 24), (44, 1), 156), ((4, 6), (1, 0), 24), ((0, 3), (44, 1), 0), ((), (), 1)],
)
def test_bytes_count_gaps(shape, stride, elements):
    assert TensorType(shape, stride, torch.float32).bytes == 4 * elements
