"""Indexing with scalar tensors: compiled where a copy in place of the view is not observable."""

import pytest
import torch

import burnish

from ..recorded_events import recorded
from .compare_sizes import called_with

TABLE = torch.randn(10, 4, 5)
X = torch.randn(4, 5)
PLACES = (0, 2, 3, -1)


@pytest.fixture
def refused():
    with recorded("lower.refused", "breaks", datum="text") as seen:
        yield seen


def row(x, t):
    return x * TABLE[t].sum() + TABLE[t]


def column(x, t):
    return x + TABLE[:, t].sum(0)


def last(x, t):
    return x + TABLE[..., t][:4, :1]


def after_a_number(x, t):
    return x + TABLE[1, t]


def before_a_slice(x, t):
    return x + TABLE[t, 1:3].sum()


def behind_dots(x, t):
    return x + TABLE[..., t, None, :].sum((0, 1))


def of_the_input(x, t):
    return x[t].relu() * 2


READ = [row, column, last, after_a_number, before_a_slice, behind_dots, of_the_input]


def same(compiled, fn, gradients, dtype=torch.int64):
    for place in PLACES:
        ours, theirs = (X.clone().requires_grad_(gradients) for _ in range(2))
        t = torch.tensor(place, dtype=dtype)
        found, wanted = compiled(ours, t), fn(theirs, t)
        torch.testing.assert_close(found, wanted)
        for one, other in zip(
            found if isinstance(found, tuple) else (found,),
            wanted if isinstance(wanted, tuple) else (wanted,),
            strict=True,
        ):
            assert one.stride() == other.stride()
        torch.testing.assert_close(ours, theirs)
        if gradients:
            for result in (found, wanted):
                (sum(map(torch.sum, result)) if isinstance(result, tuple) else result.sum()).backward()
            torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("fn", READ, ids=lambda fn: fn.__name__)
def test_a_part_that_is_only_read_is_part_of_the_graph(fn, gradients, refused):
    for dtype in (torch.int64, torch.int32, torch.int8) if fn is row else (torch.int64,):
        compiled = burnish.compile(fn)
        same(compiled, fn, gradients, dtype)
        assert burnish.was_compiled(compiled) and not refused


@pytest.mark.parametrize("fn", READ, ids=lambda fn: fn.__name__)
def test_a_place_that_is_not_there_is_eagers_error(fn):
    compiled = burnish.compile(fn)
    compiled(X, torch.tensor(0))
    for place in (77, -78):
        with pytest.raises(IndexError) as wanted:
            fn(X, torch.tensor(place))
        with pytest.raises(IndexError) as found:
            compiled(X, torch.tensor(place))
        assert str(found.value) == str(wanted.value)


def handed_out(x, t):
    y = TABLE[t]
    return x + y, y


def handed_out_further_on(x, t):
    return x * 2, x[t].view(5, 1)[1:]


def written_through(x, t):
    y = x.clone()
    y[t].add_(1)
    return y


def written_to_after(x, t):
    y = x * 1
    part = y[t]
    y.add_(1)
    return part + y


def written_to_the_input_after(x, t):
    part = x[t]
    x.detach().mul_(2)
    return part.detach() + 1


def laid_out_otherwise(x, t):
    return TABLE.permute(2, 1, 0)[:, :, t].relu() + x.sum()


def with_a_stride_of_its_own(x, t):
    return TABLE[None, t].relu() + x


@pytest.mark.falls_back(
    "refused",
    only=(
        r"handed_out-False|handed_out-True|handed_out_further_on-False|handed_out_further_on-True|"
        r"written_through-False|written_through-True|written_to_after-False|written_to_after-True|"
        r"laid_out_otherwise-False|laid_out_otherwise-True|with_a_stride_of_its_own-False|"
        r"with_a_stride_of_its_own-True"
    ),
)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        handed_out,
        handed_out_further_on,
        written_through,
        written_to_after,
        laid_out_otherwise,
        with_a_stride_of_its_own,
    ],
    ids=lambda fn: fn.__name__,
)
def test_the_graph_runs_eagerly_if_a_copy_is_observable(fn, gradients, refused):
    same(burnish.compile(fn), fn, gradients)
    assert refused and all("runs eagerly" in text for text in refused)


@pytest.mark.falls_back("refused")
def test_a_write_to_an_input_after_its_part_was_taken_shows_in_the_part():
    same(burnish.compile(written_to_the_input_after), written_to_the_input_after, False)


@pytest.mark.falls_back("refused")
def test_a_returned_view_shows_later_writes_to_the_tensor():
    table = TABLE.clone()
    compiled = burnish.compile(lambda table, t: (table[t], table.sum()))
    for place in PLACES:
        part, _ = compiled(table, torch.tensor(place))
        table.add_(1)
        assert torch.equal(part, table[place])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_places_that_tensors_hold_leave_sizes_symbolic(dtype):
    """As suppression of boxes takes the best one of those that are left."""

    def fn(boxes, order):
        best = order[0].to(dtype)
        low, high = torch.maximum(boxes[best, :2], boxes[order, :2]), torch.minimum(boxes[best, 2:], boxes[order, 2:])
        rest = boxes.clone()
        rest[best.long(), 1:3] = 0
        return (high - low).clamp(min=0).prod(1) * boxes[order, best.long() % 4], rest

    calls = [(torch.rand(n, 4), torch.randperm(n)[:k]) for n, k in ((12, 12), (12, 11), (12, 7), (15, 9), (20, 5))]
    seen = called_with(fn, calls)
    assert not seen.why_closed and not seen.why_apiece, seen.words
