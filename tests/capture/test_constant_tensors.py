"""Python that branches on tensors made of constants: evaluated while tracing, without a graph break."""

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


@pytest.mark.parametrize(
    "decide",
    [
        lambda x: torch.zeros(3).any() or not torch.ones(2, 2).all(),
        lambda x: (torch.full((2,), 3) > 2).all() and torch.linspace(0, 1, 3)[1] == 0.5,
        lambda x: torch.eye(3).sum() - 3,
        lambda x: torch.where(torch.arange(4) > 2, 1, 0).max() > torch.tril(torch.ones(2, 2))[0, 1],
    ],
)
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


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.view(torch.div(12, 4, rounding_mode="trunc"), -1),
        lambda x: [torch.arange(0, h, dtype=torch.float32) + w for h, w in torch.tensor([[2, 3], [4, 5]])],
        lambda x: [x[:n] for n in torch.arange(1, 3)],
        lambda x: x.view(3, 4)[torch.tensor(1) :, torch.tensor(0) : torch.tensor(3), None],
        lambda x: x.new_zeros((torch.tensor(2), 3)) + torch.zeros(torch.tensor(3)),
        lambda x: torch.nn.functional.pad(x, (torch.tensor(2), 0)),
        lambda x: torch.nn.functional.interpolate(x[None, None], size=torch.tensor(5)),
        lambda x: x.expand(size=(torch.tensor(2), 12)).narrow(1, torch.tensor(2), torch.tensor(4)),
        lambda x: x.split(torch.tensor([4, 8]).tolist()),
        lambda x: x.as_strided(size=(torch.tensor(2), 3), stride=(torch.tensor(1), 2)),
        lambda x: x * torch.tensor(2.5).item() + int(torch.tensor([3]) * 2) - float(torch.eye(2)[0, 0]),
        lambda x: torch.stack([torch.tensor(2), torch.tensor(3)]) + x[torch.tensor(2)] + x[torch.tensor([1, 0])],
    ],
)
def test_numbers_that_are_read_of_them(compute):
    check(compute, torch.randn(12))
    burnish.reset()
    check(compute, torch.randn(12), backend="burnish")


def test_a_number_read_of_what_data_went_into_is_a_break():
    def fn(x, n):
        sizes = torch.tensor([2, 2]) + n
        return x[: sizes[0]] + 1, x.view(sizes[1], -1), sizes.tolist()

    compiled = burnish.compile(fn, backend="eager")
    for n in (0, 1, 4, 0):
        want, got = fn(torch.arange(12.0), torch.tensor(n)), compiled(torch.arange(12.0), torch.tensor(n))
        assert [x.tolist() for x in want[:2]] == [x.tolist() for x in got[:2]] and want[2] == got[2]
    whole = burnish.compile(fn, fullgraph=True, backend="eager")  # the number stays in the graph
    for n in (1, 0, 4):
        want, got = fn(torch.arange(12.0), torch.tensor(n)), whole(torch.arange(12.0), torch.tensor(n))
        assert [x.tolist() for x in want[:2]] == [x.tolist() for x in got[:2]] and want[2] == got[2]


@pytest.mark.falls_back("sizes")
def test_a_number_read_of_a_tensor_made_of_a_size_that_varies():
    def fn(x):
        half = torch.div(x.shape[0], 2, rounding_mode="trunc")
        return x[:half] * 2, x.view(half, 2)

    compiled = burnish.compile(fn)
    for size in (4, 6, 8, 12, 4):
        torch.testing.assert_close(compiled(torch.ones(size)), fn(torch.ones(size)))


def test_writes_to_what_was_there_before_change_no_constant():
    def fn(x):
        y = x + 1
        y[0] = 5
        y.mul_(2)
        half = torch.div(len(y), 2, rounding_mode="trunc")
        return y.view(half, 2)

    check(fn, torch.randn(12))


def test_writes_to_what_a_constant_was_made_of_are_seen():
    def fn(x, n):
        sizes = torch.tensor([2, 6])
        first = sizes[0]
        sizes += n
        return x.view(first, -1)

    compiled = burnish.compile(fn, backend="eager")
    for n in (0, 1, 4, 0):
        assert compiled(torch.ones(12), torch.tensor(n)).shape == fn(torch.ones(12), torch.tensor(n)).shape


def test_size_and_content_that_are_given_by_name():
    def fn(x, n):
        return x[: torch.full(size=(), fill_value=n)], x * torch.full((), fill_value=n).item()

    compiled = burnish.compile(fn, backend="eager")
    for n in (1, 2, 3, 1):
        torch.testing.assert_close(compiled(torch.ones(4), n), fn(torch.ones(4), n))
