"""Integer tensors used as numbers (sizes, slice limits, list indices): results are data-dependent."""

import collections
import operator

import pytest
import torch
from torch.nn import functional

import burnish

SIZES = {
    "zeros": lambda x, n: torch.zeros(n),
    "zeros of two": lambda x, n: torch.zeros((n, 2)),
    "ones": lambda x, n: torch.ones(n, n),
    "arange": lambda x, n: torch.arange(n),
    "arange to": lambda x, n: torch.arange(0, n),
    "full": lambda x, n: torch.full((n,), 1.0),
    "new_zeros": lambda x, n: x.new_zeros(n),
    "new_empty": lambda x, n: x.new_empty((n, 3)),
    "expand": lambda x, n: x[:1].expand(n),
    "repeat": lambda x, n: x.repeat(n),
    "tile": lambda x, n: x.tile(n),
    "from": lambda x, n: x[n:],
    "to": lambda x, n: x[:n],
    "step": lambda x, n: x[::n],
    "inner slice": lambda x, n: x[None, ..., n:][0],
    "narrow": lambda x, n: x.narrow(0, 1, n),
    "split": lambda x, n: x.split(n)[0],
    "chunk": lambda x, n: x.chunk(n)[0],
    "unfold": lambda x, n: x.unfold(0, n, 1),
    "tensor_split": lambda x, n: x.tensor_split(n)[0],
    "by places": lambda x, n: x.tensor_split(torch.stack([n]))[0],
    "eye": lambda x, n: torch.eye(n),
    "linspace": lambda x, n: torch.linspace(0, 1, n),
    "one_hot": lambda x, n: functional.one_hot(torch.arange(1), n)[0],
    "one_hot of what is there": lambda x, n: functional.one_hot(torch.stack([n, n]))[0],
    "pad": lambda x, n: functional.pad(x, (0, n)),
    "view": lambda x, n: torch.zeros(12).view(n, -1),
    "reshape": lambda x, n: torch.zeros(12).reshape(n, -1),
    "topk": lambda x, n: x.topk(n)[0],
    "diagonal": lambda x, n: torch.ones(8, 8).diagonal(n),
    "as_strided": lambda x, n: x.as_strided((n,), (1,)),
    "pool": lambda x, n: functional.avg_pool1d(x[None], n)[0],
    "histc": lambda x, n: torch.histc(x, n),
    "interpolate": lambda x, n: functional.interpolate(x[None, None], size=n)[0, 0],
    "arange to a float": lambda x, n: torch.arange(0.0, n * 1.0, 0.5),
    "range in an index": lambda x, n: x[torch.arange(n)],
}


def changed_list(x, n):
    items = [1, 2, 3, 4, 5, 6]
    first = items.pop(n)
    items.insert(n, 50)
    del items[n]
    items[n] = 7
    return x + first, items


def changed_slices(x, n):
    items = [1, 2, 3, 4, 5, 6]
    items[:n] = [9]
    del items[n:]
    return x + len(items), items


def rotated(x, n):
    items = collections.deque([1, 2, 3, 4, 5, 6])
    items.rotate(n)
    return x + items[0], items


LIST = [1, 2, 3, 4, 5, 6, 7]

PLACES = {
    "tuple": lambda x, n: len((1, 2, 3, 4, 5, 6, 7)[:n]) + x,
    "list": lambda x, n: sum(LIST[n:]) + x,
    "string": lambda x, n: len("abcdefg"[n:]) + x,
    "range": lambda x, n: len(range(10)[n:]) + x,
    "one of a list": lambda x, n: LIST[n] + x,
    "itemgetter": lambda x, n: operator.itemgetter(n)(LIST) + x,
    "repeated": lambda x, n: len([0] * n) + x,
    "a list changed": changed_list,
    "slices changed": changed_slices,
    "a deque turned": rotated,
}


@pytest.mark.falls_back(
    "sizes",
    only=(
        r"zeros-burnish|zeros of two-burnish|ones-burnish|arange-burnish|arange to-burnish|full-burnish|"
        r"new_zeros-burnish|new_empty-burnish|repeat-burnish|tile-burnish|from-burnish|to-burnish|"
        r"step-burnish|narrow-burnish|split-burnish|chunk-burnish|unfold-burnish|tensor_split-burnish|"
        r"by places-burnish|eye-burnish|linspace-burnish|pad-burnish|view-burnish|reshape-burnish|"
        r"topk-burnish|as_strided-burnish|histc-burnish|arange to a float-burnish"
    ),
)
@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("make", SIZES.values(), ids=SIZES)
def test_a_size_read_from_a_tensor_is_no_constant(make, backend):
    def fn(x, n):
        made = make(x, n)
        return made, made.shape[0] * x, made.numel()

    compiled = burnish.compile(fn, backend=backend)
    for n in (2, 3, 1, 4, 2):
        x, n = torch.arange(6.0), torch.tensor(n)
        torch.testing.assert_close(compiled(x, n)[1:], fn(x, n)[1:])
        if make is not SIZES["new_empty"]:
            torch.testing.assert_close(compiled(x, n)[0], fn(x, n)[0])


@pytest.mark.parametrize("fn", PLACES.values(), ids=PLACES)
def test_a_place_read_from_a_tensor_is_no_constant(fn):
    compiled = burnish.compile(fn, backend="eager")
    for n in (2, 3, 1, 4, 2):
        x, n = torch.arange(6.0), torch.tensor(n)
        torch.testing.assert_close(compiled(x, n), fn(x, n))


def test_numbers_that_change_no_size_stay_in_the_graph():
    def fn(x, n):
        return x[n] + x.roll(n) + torch.full((2, 1), 1.0) + x.select(0, n), x + n, x.clamp(max=n)

    x = torch.arange(6.0)
    assert burnish.explain(fn)(x, torch.tensor(2)).graph_break_count == 0
    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for n in (2, 3, 1, 4, 2):
        torch.testing.assert_close(compiled(x, torch.tensor(n)), fn(x, torch.tensor(n)))
