"""Integers of the program that change from call to call, and that a torch call takes as a size or as an index."""

import pytest
import torch
from torch.nn import functional as F

import burnish
from burnish import events

TABLE = torch.arange(96.0).view(24, 4)

CALLS = {
    "select": lambda x, n: x.select(0, n) * 2,
    "select from the end": lambda x, n: x.select(0, -n) * 2,
    "two selects": lambda x, n: x.select(0, n) + x.select(0, n - 1),
    "narrow at": lambda x, n: x.narrow(0, n, 2) + 1,
    "narrow to": lambda x, n: x.narrow(0, 24 - n, n).sum(0),
    "tile": lambda x, n: x.tile(n, 1).sum(),
    "pad": lambda x, n: F.pad(x, (n, 1)) * 2,
    "crop": lambda x, n: F.pad(x, (0, 0, -n, 0)) * 2,
    "topk": lambda x, n: x.topk(n, dim=0).values * 2,
    "kthvalue": lambda x, n: x.kthvalue(n, dim=0).values * 2,
    "interpolate": lambda x, n: F.interpolate(x[None, None], size=(n + 2, 4)).sum(),
    "getitem": lambda x, n: x[n] * 2,
    "slice": lambda x, n: x[n : n + 2].sum(0),
}


BY_SIZE = ("select from the end", "crop")
"""Negative numbers: machine code is made for each, from one graph."""

COMPILED = [pytest.param(name, marks=pytest.mark.falls_back("sizes") if name in BY_SIZE else ()) for name in CALLS]


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("name", COMPILED)
def test_one_graph_serves_all_values(name, backend):
    fn, graphs = CALLS[name], []
    stop = events.subscribe(lambda event: graphs.append(event.data["segment"].graph), ("segment",))
    try:
        with burnish.settings.patch(never_slower=False):
            compiled = burnish.compile(fn, backend=backend, fullgraph=True)
            for n in (*range(2, 14), 5, 3):
                want, got = fn(TABLE, n), compiled(TABLE, n)
                torch.testing.assert_close(got, want)
                assert got.stride() == want.stride()
    finally:
        stop()
    assert len(graphs) <= 3


@pytest.mark.parametrize("name", COMPILED)
def test_gradients_follow_the_value(name):
    fn = CALLS[name]
    compiled = burnish.compile(lambda x, n: fn(x, n).sin().sum(), fullgraph=True, options={"never_slower": False})
    for n in (2, 3, 7, 5, 11):
        x = TABLE.clone().requires_grad_()
        expected = torch.autograd.grad(fn(x, n).sin().sum(), x)
        torch.testing.assert_close(torch.autograd.grad(compiled(x, n), x), expected)


@pytest.mark.parametrize("name", ["select", "narrow at", "topk", "kthvalue", "getitem"])
def test_a_value_out_of_range_raises_as_in_eager(name):
    fn = CALLS[name]
    compiled = burnish.compile(fn, backend="eager")
    for n in (2, 3, 30, 4, 31):
        try:
            want = fn(TABLE, n)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                compiled(TABLE, n)
        else:
            torch.testing.assert_close(compiled(TABLE, n), want)
