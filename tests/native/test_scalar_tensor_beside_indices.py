"""Indexing by integer tensors without dimensions, alone and beside other indices: reads, writes, gradients."""

import pytest
import torch

import burnish

ALL = slice(None)
ROWS, COLUMNS, ONE = "rows", "columns", "one"
INDICES = (
    *((ONE,), (ALL, ONE), (ONE, ONE), (..., ONE), (ROWS, ONE), (ONE, ROWS), (ROWS, ALL, ONE), (ALL, ROWS, ONE)),
    *((..., ONE, ROWS), (ROWS, 0, ONE), (0, ONE, ROWS), (COLUMNS, ONE, ROWS), (ROWS, ONE, None, COLUMNS)),
    *((None, ONE, ROWS), (slice(1, None), ONE, slice(None, None, 2)), (..., ONE, None)),
)


def index(parts, one, rows):
    named = {ONE: one, ROWS: rows, COLUMNS: rows[:2, None]}
    return tuple([named[part] if isinstance(part, str) else part for part in parts])


def calls():
    for number, dtype in ((0, torch.int64), (2, torch.int32), (-1, torch.int64)):
        x = torch.randn(3, 4, 3, 5, requires_grad=True)
        yield x, torch.tensor(number, dtype=dtype), torch.tensor([0, 1, number])


@pytest.mark.parametrize("parts", INDICES, ids=str)
def test_reads(parts):
    def read(x, one, rows):
        return x[index(parts, one, rows)] * 2

    compiled = burnish.compile(read, fullgraph=True)
    for args in calls():
        found, expected = compiled(*args), read(*args)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert found.stride() == expected.stride()
        weights = torch.randn_like(expected)
        gradients = [torch.autograd.grad(out, args[0], weights)[0] for out in (found, expected)]
        torch.testing.assert_close(*gradients)
    assert burnish.was_compiled(compiled)


@pytest.mark.parametrize("parts", INDICES, ids=str)
def test_writes(parts):
    def write(x, one, rows, value):
        y = x * 2
        y[index(parts, one, rows)] = 7
        y[index(parts, one, rows)] = value
        return y

    compiled = burnish.compile(write, fullgraph=True)
    for dtype in (torch.float32, torch.float32, torch.float32 if ROWS in parts else torch.float64):
        for args in calls():
            value = torch.randn((), dtype=dtype, requires_grad=True)
            found, expected = compiled(*args, value), write(*args, value)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
            weights = torch.randn_like(expected)
            gradients = [torch.autograd.grad(out, (args[0], value), weights) for out in (found, expected)]
            torch.testing.assert_close(*gradients)
    assert burnish.was_compiled(compiled)


def test_an_index_that_is_too_large_is_eagers_error():
    compiled = burnish.compile(lambda x, one, rows: x[rows, one] + 1)
    x, rows = torch.randn(3, 4), torch.tensor([0, 2])
    compiled(x, torch.tensor(1), rows)
    for number in (4, -5):
        with pytest.raises(IndexError, match=f"index {number} is out of bounds for dimension 1 with size 4"):
            compiled(x, torch.tensor(number), rows)


@pytest.mark.falls_back("refused")
def test_positions_that_eager_puts_elsewhere_are_not_merged():
    def read(x, one, rows):
        return x[one, :, rows] + 1, x[:, rows, :, one] + 1

    compiled = burnish.compile(read)
    for args in calls():
        for found, expected in zip(compiled(*args), read(*args), strict=True):
            torch.testing.assert_close(found, expected)
