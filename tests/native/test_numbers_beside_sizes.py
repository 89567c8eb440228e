"""Numbers that change beside sizes that change: live scalars of a program for all sizes."""

import pytest
import torch

import burnish

from ..recorded_events import recorded
from .compare_sizes import called_with, same, watching

SIZES = (8, 9, 10, 77, 2, 300, 13)


class Counter:
    """Like the counter of a cache with a window."""

    def __init__(self):
        self.seen = 0


def window(x, n):
    at = torch.arange(5) + n
    return x.sum(0) + torch.where(at > 7, 1.0, -1.0), at


PROGRAMS = {
    "added": lambda x, n: (x * 2 + n, n + 1),
    "a window's place": window,
    "computed outside": lambda x, n: x.cumsum(0) * max(n - 16 + 1, 0),
    "compared": lambda x, n: torch.where(torch.arange(x.shape[0])[:, None] >= n, x, 0.0),
    "beside a size": lambda x, n: x * x.shape[0] + n * x.shape[0],
    "whole numbers": lambda x, n: (x > 0).long() * n - n // 2,
    "with a size in one number": lambda x, n: x + (n + x.shape[0]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_stays_live_beside_sizes(name):
    numbers = (3, 17, 18, 1, 0, -5, 2**40)
    calls = [(torch.randn(size, 5), number) for size, number in zip(SIZES, numbers, strict=True)]
    seen = called_with(PROGRAMS[name], calls)
    assert seen.is_open and not seen.why_apiece, seen.words


def test_an_attribute_that_counts_beside_a_growing_tensor():
    def step(x, cache, counter):
        counter.seen += 1
        at = torch.arange(4) + counter.seen
        cache = torch.cat([cache, x], 1)
        return cache * 2, torch.where(at > 9, 0.0, x), cache

    with watching() as seen, torch.no_grad():
        compiled = burnish.compile(step)
        mine, theirs = Counter(), Counter()
        cache, other = torch.randn(2, 3), None
        other = cache.clone()
        for _ in range(20):
            x = torch.randn(2, 4)
            found = compiled(x, cache, mine)
            wanted = step(x, other, theirs)
            same(found, wanted)
            assert mine.seen == theirs.seen
            cache, other = found[-1], wanted[-1]
    assert seen.is_open and not seen.why_apiece and seen.segments <= 3


def test_gradients_beside_a_number():
    def fn(x, n):
        return ((x * n).sin() + n).sum(1)

    with watching() as seen:
        compiled = burnish.compile(fn)
        for size, number in zip(SIZES, (3, 17, 18, 1, 0, -5, 9), strict=True):
            x = torch.randn(size, 6, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            compiled(x, number).sum().backward()
            fn(y, number).sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
    assert seen.is_open and not seen.why_apiece


CONSTANTS = {
    "a size of nothing given": lambda x, n: x.sum() + torch.arange(n) * 2,
    "a place to roll to": lambda x, n: x.roll(n, 0) + 1,
    "an index": lambda x, n: x[n % x.shape[0]] * 2,
    "how many to keep": lambda x, n: (x * 2).topk(min(n, x.shape[0]), 0).values,
    "a dimension": lambda x, n: x[:, None].sum(n % 2),
    "how often": lambda x, n: sum((x * k for k in range(n)), x),
}


@pytest.mark.falls_back("sizes", "numbers")
@pytest.mark.parametrize("name", CONSTANTS)
def test_a_number_that_may_have_to_be_a_constant(name):
    calls = [(torch.randn(size), number) for size, number in zip(SIZES, range(1, 8), strict=True)]
    called_with(CONSTANTS[name], calls)


def test_a_number_that_becomes_another_kind_of_number():
    called_with(
        lambda x, n: x + n,
        [(torch.randn(size, 3), n) for size, n in zip(SIZES, (3, 4, 5.5, True, 7, 2.0, False), strict=True)],
    )


def joined_heads(x, length, n):
    return x.transpose(1, 2).reshape(2, length, 128) * n


def joined_behind_a_solution(x, length, n):
    found = torch.linalg.lstsq(x[0, 0], x[1, 1]).solution
    return (x + found.sum()).transpose(1, 2).reshape(2, length, 128) * n


@pytest.mark.falls_back("sizes", "numbers")
@pytest.mark.parametrize(
    "fn, has_autocast, most", [(joined_heads, True, 0), (joined_behind_a_solution, False, 2)], ids=["whole", "in parts"]
)
def test_a_number_stays_live_where_each_size_is_compiled(fn, has_autocast, most):
    with torch.autocast("cpu", torch.bfloat16, enabled=has_autocast), recorded("lower.numbers") as seen:
        called_with(fn, [(torch.randn(2, 2, 16 + n % 2, 64), 16 + n % 2, n) for n in range(12)])
    assert len(seen) <= most  # one for each size, none for each number
