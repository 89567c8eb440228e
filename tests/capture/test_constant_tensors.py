"""Python that decides by tensors made of constants alone: known when the trace is made, and no break."""

import pytest
import torch

import burnish
from burnish.errors import BurnishError


def check(fn, *args, backend="eager"):
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(*args), fn(*args))
    return compiled


def test_positions_that_are_compared():
    def fn(x):
        positions = torch.arange(x.shape[1])[None]
        steps = torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1)
        if ((steps != 1).cumsum(-1)[:, -1] == 0).all():
            return x + positions
        return x - positions

    check(fn, torch.randn(3, 5))
    compiled = burnish.compile(fn, backend="eager")
    for size in (5, 7, 6, 5):  # from the second one on the size is open, and what it decides no constant
        torch.testing.assert_close(compiled(torch.ones(2, size)), fn(torch.ones(2, size)))


@pytest.mark.parametrize("decide", [
    lambda x: torch.zeros(3).any() or not torch.ones(2, 2).all(),
    lambda x: (torch.full((2,), 3) > 2).all() and torch.linspace(0, 1, 3)[1] == 0.5,
    lambda x: torch.eye(3).sum() - 3,
    lambda x: torch.where(torch.arange(4) > 2, 1, 0).max() > torch.tril(torch.ones(2, 2))[0, 1],
])
def test_ways_to_compute_them(decide):
    check(lambda x: x * 2 if decide(x) else x - 1, torch.ones(3))


def of_data(x):
    return (torch.zeros(3) + x).any()


def drawn(x):
    return torch.rand(()) > 0.5


def left_as_it_was(x):
    return (torch.empty(1) * 0 == 0).all()


def written_to(x):
    y = torch.zeros(3)
    y.add_(x)
    return y.any()


def written_through_a_view(x):
    y = torch.zeros(3)
    y[0] = x[0]
    return (y > 0).any()


@pytest.mark.parametrize("decide", [of_data, drawn, left_as_it_was, written_to, written_through_a_view])
def test_what_may_be_another_one_is_a_break(decide):
    def fn(x):
        return x + 1 if decide(x) else x - 1

    with pytest.raises(BurnishError):
        burnish.compile(fn, fullgraph=True, backend="eager")(torch.ones(3))
    if decide is not drawn and decide is not left_as_it_was:
        compiled = burnish.compile(fn, backend="eager")
        for x in (torch.ones(3), torch.zeros(3), torch.ones(3)):
            torch.testing.assert_close(compiled(x), fn(x))


def test_more_than_one_element_is_the_error_it_is():
    def fn(x):
        return x if torch.arange(3) > 1 else -x

    with pytest.raises(RuntimeError, match="ambiguous"):
        burnish.compile(fn, backend="eager")(torch.ones(3))
