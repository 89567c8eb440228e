"""Integers of the program that calls take as sizes: from the second value on, one compilation serves all of them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import burnish

from .compare_sizes import watching

VALUES = (3, 4, 5, 6, 9, 20, 1, 30, 0, -1, 7, 29)
"""The first is compiled for by itself, the second for all from 2 on; 1, 0 and -1 by themselves."""

BY_NUMBER = {
    "steps": lambda x, n: torch.linspace(0, 1, n + 1).sin(),
    "a range": lambda x, n: torch.arange(n + 1) * 2 + x.sum(),
    "an index": lambda x, n: x[n] * 2,
    "an index of columns": lambda x, n: x[:, n] * 2,
    "a filled tensor": lambda x, n: torch.full((n + 1, 2), 1.5) + x[0, :2],
    "a position in a table": lambda x, n: x[n : n + 1] * 2,
    "two sides": lambda x, n: (x[:n].sum() * 2, x[n:] * 3),
    "a size and an index": lambda x, n: torch.zeros(n + 1, n + 2).cos() + x[n, 0],
    "a size and a factor": lambda x, n: torch.ones(n + 1) * n + x[0, 0] / (n + 2),
    "repeated": lambda x, n: x[0].repeat(n + 1),
    "an offset of a diagonal": lambda x, n: torch.triu(x, n),
    "select": lambda x, n: x.select(0, n) * 2,
    "narrow": lambda x, n: x.narrow(0, n, 2) * 2,
    "narrow to": lambda x, n: x.narrow(dim=1, start=32 - n, length=n) * 2,
    "the largest": lambda x, n: torch.topk(x, n, dim=0).values * 2,
    "one of the smallest": lambda x, n: x.kthvalue(n + 1, dim=0).values * 2,
    "tiled": lambda x, n: x[0].tile(n, 2) * 2,
    "padded": lambda x, n: F.pad(x, (n, 1)) * 2,
    "each repeated": lambda x, n: x.repeat_interleave(n, dim=0) * 2,
    "a first part": lambda x, n: x.split([n, 32 - n])[0] * 2,
}


@pytest.mark.parametrize("name", BY_NUMBER)
@pytest.mark.parametrize("learns", [False, True])
def test_numbers_as_sizes(name, learns):
    x, fn = torch.randn(32, 32), BY_NUMBER[name]
    compiled = burnish.compile(fn, fullgraph=True)
    with watching() as seen:
        for n in VALUES:
            given, plain = (x.clone().requires_grad_(learns) for _ in range(2))
            try:
                expected = fn(plain, n)
            except (RuntimeError, IndexError) as error:
                with pytest.raises(type(error)):
                    compiled(given, n)
                continue
            found = compiled(given, n)
            torch.testing.assert_close(found, expected)
            if learns:
                for made, argument in ((found, given), (expected, plain)):
                    first = made[0] if isinstance(made, tuple) else made
                    if first.requires_grad:
                        first.square().sum().backward()  # whose gradient is as accurate as `first` is
                torch.testing.assert_close(given.grad, plain.grad)
    assert seen.is_open and not seen.why_apiece, seen.words
    assert seen.segments <= 6


class Attention(nn.Module):
    """As in the reference of Llama: a cache that is written from a position on, which is an argument."""

    def __init__(self):
        super().__init__()
        self.query, self.value = nn.Linear(8, 8), nn.Linear(8, 8)
        self.cache = torch.zeros(2, 32, 8)
        self.angles = torch.polar(torch.ones(32, 4), torch.arange(128.0).view(32, 4))

    @torch.inference_mode()
    def forward(self, x, start: int):
        rows, length, _ = x.shape
        turned = torch.view_as_complex(self.query(x).view(rows, length, 4, 2)) * self.angles[start : start + length]
        self.cache = self.cache.to(x)
        self.cache[:rows, start : start + length] = self.value(x)
        known = self.cache[:rows, : start + length]
        weights = torch.view_as_real(turned).flatten(2) @ known.transpose(1, 2)
        if length > 1:
            mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
            weights = weights + torch.hstack([torch.zeros(length, start), mask])
        return weights.softmax(-1) @ known


def set_row(x, n):
    y = x * 1
    y[n] = 0.0
    return y


def set_rows(x, n):
    y = x * 1
    y[n : n + 2] = 0.0
    return y


BESIDE_SIZES = {
    "an index": lambda x, n: x[n] * 2,
    "an index behind another": lambda x, n: (x[None] * 2)[:, n],
    "a slice": lambda x, n: x[n : n + 2] * 2,
    "up to": lambda x, n: x[:n].sum(0) * 2,
    "select": lambda x, n: x.select(0, n) * 2,
    "narrow": lambda x, n: x.narrow(0, n, 2) * 2,
    "narrow from the end": lambda x, n: x.narrow(0, -n, 2) * 2,
    "select from the end": lambda x, n: x.select(0, -n) * 2,
    "the largest": lambda x, n: x.topk(k=n, dim=0).values * 2,
    "one of the smallest": lambda x, n: x.kthvalue(n, 0).values * 2,
    "parts": lambda x, n: x.split(n)[0] * len(x.split(n)),
    "parts by keyword": lambda x, n: x.split(split_size=n, dim=0)[-1] * 2,
    "two parts": lambda x, n: torch.split(x, [n, x.shape[0] - n])[1] * 2,
    "reflected": lambda x, n: F.pad(x.t()[None], (n, 0), mode="reflect") * 2,
    "wrapped around": lambda x, n: F.pad(x.t()[None], (0, n), mode="circular") * 2,
    "other strides": lambda x, n: x.as_strided((n, 2), (3, 1)) * 2,
    "cropped": lambda x, n: F.pad(x, (0, 0, -n, 0)) * 2,
    "each repeated": lambda x, n: x.repeat_interleave(n - 4, dim=0) * 2,
    "tiled": lambda x, n: x.tile(n - 4, 2) * 2,
    "a row is set": set_row,
    "rows are set": set_rows,
    "a view": lambda x, n: x.expand(n, *x.shape) * 2,
    "zeros": lambda x, n: torch.cat([torch.zeros(n, 3), x]) * 2,
}


@pytest.mark.falls_back("sizes", "numbers", "refused", "limit")
@pytest.mark.parametrize("name", BESIDE_SIZES)
def test_numbers_and_sizes_change_apart(name):
    """A number may be larger than the size in the next call: an index is then an error, and a slice ends there."""
    fn = BESIDE_SIZES[name]
    compiled = burnish.compile(fn)
    for rows, n in ((9, 3), (10, 4), (30, 5), (7, 5), (6, 6), (5, 7), (4, 20), (200, 150), (40, 150), (150, 40)):
        x = torch.randn(rows, 3)
        try:
            expected = fn(x, n)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                compiled(x, n)
        else:
            torch.testing.assert_close(compiled(x, n), expected)


OF_ANOTHER = {
    "reflected": lambda x, n: F.pad(x.t()[None], (n, 0), mode="reflect") * 2,
    "other strides": lambda x, n: x.as_strided((n, 2), (3, 1)) * 2,
    "the largest": lambda x, n: x.topk(n, 0).values * 2,
    "narrow": lambda x, n: x.narrow(0, 1, n) * 2,
    "rows in place of others": lambda x, n: x.slice_scatter(torch.ones(2, 3), 0, n - 2, n) * 2,
    "a row in place of another": lambda x, n: x.select_scatter(torch.ones(3), 0, n) * 2,
}


@pytest.mark.falls_back("sizes", "numbers", "refused", "limit")
@pytest.mark.parametrize("name", OF_ANOTHER)
def test_the_size_of_another_tensor_may_be_too_large(name):
    compiled = burnish.compile(lambda x, y: OF_ANOTHER[name](x, y.shape[0]))
    for rows, n in ((9, 3), (10, 4), (30, 5), (7, 5), (6, 6), (5, 7), (4, 20), (40, 150), (8, 8), (60, 61)):
        x = torch.randn(rows, 3)
        try:
            expected = OF_ANOTHER[name](x, n)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                compiled(x, torch.ones(n))
        else:
            torch.testing.assert_close(compiled(x, torch.ones(n)), expected)


def test_a_shift_by_more_than_the_size_begins_again():
    def fn(x, y):
        return x.roll(y.shape[0], 0) + 1

    compiled = burnish.compile(fn)
    for rows, shift in ((9, 3), (10, 4), (11, 5), (2, 5), (3, 40)):
        x, y = torch.randn(rows), torch.randn(shift)
        torch.testing.assert_close(compiled(x, y), fn(x, y))


def test_a_position_in_a_cache_is_compiled_for_once():
    model, plain = Attention(), Attention()
    plain.load_state_dict(model.state_dict())
    compiled, start = burnish.compile(model), 0
    with watching() as seen:
        for length in (5, *[1] * 12):
            x = torch.randn(2, length, 8)
            torch.testing.assert_close(compiled(x, start), plain(x, start))
            assert torch.equal(model.cache, plain.cache) and not model.cache.is_inference()
            start += length
    assert seen.is_open and not seen.why_apiece and seen.segments == 2


def test_a_number_that_is_not_a_size_leaves_the_sizes_symbolic():
    def fn(x, dim, rows):
        return x.softmax(dim) * 2, torch.ones(rows).cumsum(0)

    compiled = burnish.compile(fn)
    with watching() as seen:
        for size, dim, rows in ((4, 0, 3), (5, 1, 4), (6, 2, 5), (7, 1, 6), (8, 2, 7), (9, 1, 8), (10, 2, 9)):
            x = torch.randn(size, 3, 2)
            torch.testing.assert_close(compiled(x, dim, rows), fn(x, dim, rows))
    assert seen.segments <= 4 and not seen.why_apiece
