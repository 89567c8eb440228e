"""Sizes of results that a branch of torch.cond reads: formulas as others, checked for each size."""

import pytest
import torch

from ..native.compare_sizes import called_with

COUNTS = (8, 9, 10, 20, 31, 30, 24, 12, 15, 16, 17, 18, 19, 22, 7, 40)


def windows(x):
    found = x.unfold(0, 4, 3).sin()
    return torch.ones(found.shape[0]).sum() * found.sum() + found.shape[0]


def rest(x):
    found = x[1:].cos()
    return found.sum() * found.shape[0]


def test_a_branch_reads_the_size_of_its_result():
    def fn(x, y):
        h = torch.cond(x.sum() > 0, windows, rest, (x,))
        return h * 2, y.unfold(0, 5, 4).shape

    seen = called_with(fn, [(torch.randn(n, 4).double(), torch.randn(n + 1)) for n in COUNTS])
    assert seen.segments <= 3 and seen.is_open


@pytest.mark.falls_back("limit")
def test_a_branch_in_a_branch_reads_the_size_of_its_result():
    def fn(x):
        def outer(x):
            return torch.cond(x.amax() > 1, windows, rest, (x * 2,)) * x.exp().shape[0]

        return torch.cond(x.sum() > 0, outer, rest, (x,)) + 1

    called_with(fn, [(torch.randn(n, 4).double(),) for n in COUNTS])


@pytest.mark.falls_back("refused")  # eager's call leaves a function behind that something refers to weakly
def test_a_branch_that_is_given_up_after_it_has_read_a_size():
    def fn(x):
        def draws(x):
            found = x.unfold(0, 4, 3)
            return found.sum() * found.shape[0] * (torch.rand(1, dtype=x.dtype) >= 0).sum()

        h = torch.cond(x.sum() > 0, draws, rest, (x,))
        return h + x.sin().unfold(0, 5, 2).shape[0], x[1:].cos()

    called_with(fn, [(torch.randn(n, 4).double(),) for n in COUNTS[:8]])
