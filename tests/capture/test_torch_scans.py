"""torch.associative_scan is part of the graph."""

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import burnish

on_cpus = pytest.mark.skipif("must be CUDA tensors" in str(associative_scan.__doc__),
                             reason="this torch itself scans on GPUs alone, where Burnish scans on CPUs, too")


def follow(left, right):
    """Of a line's state: times a, and b more."""
    (a, b), (c, d) = left, right
    return a * c, c * b + d


def states(a, b, dim):
    return associative_scan(follow, (a, b), dim)[1]


def one_by_one(a, b, dim):
    found, state = [], torch.zeros_like(b.select(dim, 0))
    for factor, added in zip(a.unbind(dim), b.unbind(dim), strict=True):
        state = factor * state + added
        found.append(state)
    return torch.stack(found, dim)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 16, 33])
@pytest.mark.parametrize("dim", [0, 1])
def test_states_and_gradients_are_those_of_a_loop(count, dim):
    shape = (count, 3) if dim == 0 else (3, count)
    a, b = (torch.rand(shape, dtype=torch.float64, requires_grad=True) for _ in range(2))
    compiled = burnish.compile(states, fullgraph=True)
    for _ in range(2):
        got, want = compiled(a, b, dim), one_by_one(a, b, dim)
        torch.testing.assert_close(got, want)
        weights = torch.randn_like(want)
        ours, theirs = (torch.autograd.grad(x, (a, b), weights, materialize_grads=True) for x in (got, want))
        torch.testing.assert_close(ours, theirs)


@on_cpus
def test_roundings_are_torchs():
    a, b = torch.rand(2, 37), torch.randn(2, 37)
    assert torch.equal(burnish.compile(states, fullgraph=True, backend="eager")(a, b, 1), states(a, b, 1))


def test_backwards_over_a_dict():
    def fn(x):
        most = associative_scan(lambda a, b: {"most": torch.maximum(a["most"], b["most"])}, {"most": x}, 0, True)
        return most

    x = torch.randn(9, 4)
    assert torch.equal(burnish.compile(fn, fullgraph=True)(x)["most"], x.flip(0).cummax(0)[0].flip(0))


@pytest.mark.parametrize("arguments", [
    ((), 0), (torch.ones(3), 1), (torch.ones(3), "0"), pytest.param((torch.ones(3), -1), marks=on_cpus)], ids=str)
def test_what_torch_refuses_it_refuses(arguments):
    def fn(xs, dim):
        return associative_scan(torch.add, xs, dim)

    def outcome(fn):
        try:
            return fn(*arguments)
        except Exception as error:
            return type(error)

    got, want = outcome(burnish.compile(fn)), outcome(fn)
    assert got is want or torch.equal(got, want)
