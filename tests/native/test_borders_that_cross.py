"""Symbolic sizes: the borders of joined, padded and sliced values may come in another order at other sizes."""

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish.settings import patch

from .compare_sizes import called_with

SIZES = (24, 24, 27, 27, 33, 33, 38, 41, 44, 57, 30, 22, 70, 21, 36, 40)


def padded(x, a, b):
    return x + F.pad(a, (0, x.shape[1] - 20)) + 3 * F.pad(b, (x.shape[1] - 20, 0))


def scattered(x, a, b):
    return torch.slice_scatter(torch.slice_scatter(x, a, 1, 0, 20), b, 1, x.shape[1] - 20)


def padded_half(x, a, b):
    n = x.shape[1]
    return F.pad(x[:, : n // 2], (0, n - n // 2)) + F.pad(a, (0, n - 20)) * 2


def window(x, a, b):
    return torch.cat([a, x, b], 1).unfold(1, 20, 20)[:, 1] * 2


def given(n, m=20):
    return torch.randn(4, n), torch.randn(4, m), torch.randn(4, m)


@pytest.mark.parametrize("fn", [padded, scattered, padded_half, window], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.falls_back("sizes")
def test_parts_that_overlap_at_some_sizes(fn, trains):
    burnish.reset()
    with patch(never_slower=False):
        compiled = burnish.compile(fn, dynamic=True)
        for n in SIZES:
            mine, theirs = ([x.clone().requires_grad_(trains) for x in some] for some in [given(n)] for _ in range(2))
            found, wanted = compiled(*mine), fn(*theirs)
            torch.testing.assert_close(found, wanted, msg=f"for {n}")
            if trains:
                (found * torch.arange(found.shape[1])).sum().backward()
                (wanted * torch.arange(found.shape[1])).sum().backward()
                for x, y in zip(mine, theirs, strict=True):
                    torch.testing.assert_close(x.grad, y.grad, msg=f"gradient for {n}")


def test_gradients_of_slices_that_overlap_at_some_sizes():
    burnish.reset()

    def fn(x):
        return x[:, :20].sum(1) + 3 * x[:, -20:].sum(1)

    compiled = burnish.compile(fn, dynamic=True)
    for n in SIZES:
        x = torch.randn(4, n, requires_grad=True)
        (found,) = torch.autograd.grad(compiled(x).sum(), x)
        (wanted,) = torch.autograd.grad(fn(x).sum(), x)
        torch.testing.assert_close(found, wanted, msg=f"for {n}")


JOINED = {
    "a slice": lambda x, a, b: torch.cat([a, x, b], 1)[:, 20:40] * 2,
    "a window": lambda x, a, b: torch.cat([a, x], 1).unfold(1, 20, 20)[:, 1] * 2,
    "a column beyond the first": lambda x, a, b: torch.cat([a, x], 1)[:, 20] * 2,
}


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.falls_back("sizes")
def test_a_border_that_lies_elsewhere_at_the_first_sizes(name):
    sizes = [(24, 20), (27, 22), (33, 20), (38, 25), (41, 20), (44, 30), (57, 20), (70, 23), (36, 21), (33, 20)]
    called_with(JOINED[name], [given(*size) for size in sizes])


def test_a_cache_that_grows_is_compiled_for_all_lengths():
    seen = called_with(
        lambda x, a, b: (torch.cat([x, a], 1), torch.cat([x, a], 1)[:, -20:] * 2), [given(n) for n in (24, 25, 26, 90)]
    )
    assert seen.is_open and not seen.why_apiece, seen.words


def test_sizes_for_which_the_order_holds_share_a_program():
    seen = called_with(lambda x, a, b: padded(x, a, b).sin(), [given(n) for n in (70, 75, 80, 44, 30, 41, 200)], True)
    assert seen.is_open and not seen.why_apiece, seen.words


def test_a_row_that_a_slice_leaves_at_small_sizes():
    called_with(lambda x: x.t().reshape(-1)[3:19] * 2, [(torch.randn(n, 5),) for n in (24, 25, 27, 90, 17, 15, 7, 9)])
