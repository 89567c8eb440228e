"""Sizes that depend on data, in one graph (``fullgraph=True``): every call has another number of elements, or none."""

import operator

import pytest
import torch
from torch import nn

import burnish

from ..recorded_events import recorded
from .harness import program
from .training_harness import captured

ROWS = ([1.0, -1.0, 2.0], [-1.0, -2.0, -3.0], [4.0, 5.0, 6.0], [-1.0, 7.0, -2.0], [8.0, 9.0, -1.0])


def rows():
    return [(torch.tensor([row, [-v for v in row], [v + 1 for v in row], row]),) for row in ROWS]


@program(breaks=0)
def test_masked_elements():
    def fn(x):
        y = x[x > 0]
        return y, y * 2 + 1, y.sum(), y.mean(), (x * 2)[x > 1].exp()

    return fn, rows()


@program(breaks=0)
def test_masked_elements_of_another_type():
    def fn(x):
        y = x[x > 0]
        return y.type(torch.float64) * 2, y.type(), torch.nonzero(x > 0).type(torch.int32) + 1

    return fn, rows()


@program(breaks=0)
def test_masked_rows_and_columns():
    def fn(x):
        y = x[x[:, 0] > 0]
        z = x[:, x[0] > 0]
        return y @ torch.ones(3, 2), y.shape[1], z.sum(1), z.shape[0], y.mean(0), x[x[:, 0] > 0, :2]

    return fn, rows()


@program(breaks=0)
def test_shapes_are_numbers_of_the_graph():
    def fn(x):
        y = x[x > 0]
        n = y.shape[0]
        return y / (n + 1), n, len(y), y.numel() * 2, y.size(), y.size(0), y.view(-1, 1).shape, x.numel() - n

    return fn, rows()


@program(breaks=0)
def test_positions():
    def fn(x):
        places = torch.nonzero(x > 0)
        row, column = torch.nonzero(x > 0, as_tuple=True)
        (first,) = torch.where(x[0] > 0)
        return places, x[row, column], places.shape, x[places[:, 0]].sum(), first + 1, torch.argwhere(x > 2).T

    return fn, rows()


@program(breaks=0)
def test_unique_values():
    def fn(x):
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        return values, counts, values[inverse], inverse.shape, torch.unique(x).sum(), x.unique(dim=0).shape[1]

    return fn, rows()


@program(breaks=0)
def test_repeated_rows():
    def fn(x):
        counts = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        y = torch.repeat_interleave(x, counts, dim=0)
        return y * 2, y.shape, x[:, 0].repeat_interleave(counts), torch.bincount(counts)

    return fn, rows()


@program(breaks=0)
def test_masked_select_and_writes():
    def fn(x):
        y = torch.masked_select(x, x > 0)
        z = x.clone()
        z[z > 0] = y * 2
        z[z < 0] = z[z < 0].abs()
        y += 1
        return y, z

    return fn, rows()


@program(breaks=0)
def test_a_number_is_a_size():
    def fn(x):
        n = int((x > 0).sum())
        return torch.zeros(n), torch.ones(n, 3).sum(0), torch.arange(n), torch.full((n,), 2.0), x.new_zeros(2, n).shape

    return fn, rows()


@program(breaks=0)
def test_a_number_is_a_position():
    def fn(x):
        n = int((x[0] > 0).sum())
        y = x[:, :n]
        return y, y.shape, x[n:], x[n].sum(), x.narrow(0, n, 1), x.view(-1)[x.argmax().item()], x[: (x > 0).sum()]

    return fn, rows()


@program(breaks=0)
def test_sizes_that_a_slice_limits():
    def fn(x):
        y = x[x > 0]
        first, last = y[:2], y.sort().values[-2:]
        n = y.shape[0]
        a, b = int((x[0] > 0).sum()), int((x[1] > 0).sum())
        parts = x.view(-1)[a : a + b].shape, x.view(-1)[a:b].numel(), x[:, None, a:b].shape, y[:-1000].shape
        rest = torch.zeros(n % 2, 3).shape, torch.ones(n // 100).numel(), y.view(1, -1)[..., :1000].shape
        return first.shape, first.sum(), last, parts, rest, x[x[:, 0] > 0, :n].shape

    return fn, rows()


@program(breaks=0)
def test_known_sizes_are_constants():
    def fn(x):
        y = x[x[:, 0] > 0]
        n = y.shape[0]
        shapes = [y.T[0].shape[1:], torch.zeros(n, 3).shape[1], (y @ torch.ones(3, 2)).shape[1], y[:, 1:].shape[1]]
        assert shapes[1:] == [3, 2, 2]
        a, b, c = y.unbind(1)
        return shapes, {size: 1 for size in shapes[1:]}, a + b, y.expand(2, n, 3).shape[2], c.shape, y.view(n, 3).shape

    return fn, rows()


@program(breaks=0)
def test_several_masks():
    def fn(x):
        above, below = x[x > 0], x[x < 0]
        both = torch.cat([above, below])
        return above + (x * 2)[x > 0], both, both.shape, torch.outer(above, below), above.numel() - below.numel()

    return fn, rows()


@program(breaks=0)
def test_sizes_are_checked():
    def fn(x):
        y = x[x > 0]
        torch._check(y.shape[0] < 9)
        if y.shape[0] > 8:
            raise ValueError("not here")
        return y * y.shape[0]

    return fn, rows()


@program(breaks=0)
def test_errors_of_empty_tensors():
    def fn(x):
        return x[x > 0].max() + 1

    return fn, rows()


@program(breaks=0)
def test_a_module_computes_with_selected_rows():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 3))

        def forward(self, x):
            chosen = x.sum(1) > 0
            out = torch.zeros_like(x)
            out[chosen] = self.inner(x[chosen])
            return out

    return Sparse(), rows()


@program(breaks=0)
def test_gradients_inside_the_function():
    def fn(x):
        y = (x * 2)[x > 0] ** 2
        return torch.autograd.grad(y.sum() * y.shape[0], x)[0]

    return fn, [(x.requires_grad_(),) for (x,) in rows()]


@program
def test_what_depends_on_such_a_size_may_break():
    def fn(x):
        y = x[x > 0]
        if y.shape[0] == 1:
            return y.squeeze()
        return [v * 2 for v in y], y.stride()

    return fn, rows()


FNS = {
    "sum": lambda x: x[x > 0].sum(),
    "rows": lambda x: (x[x[:, 0] > 0] @ torch.ones(3, 2)).relu(),
    "after": lambda x: (x * (x[x > 0].sum() + 1)).tanh().mean(1),
    "before": lambda x: ((x * 2).sin() + 1)[x > 0].cos() * 2,
    "number": lambda x: x * x[x > 0].shape[0],
    "positions": lambda x: x[torch.nonzero(x[:, 0] > 0)[:, 0]] * 2,
    "select": lambda x: torch.masked_select(x.exp(), x > 0).log().sum(),
    "repeat": lambda x: torch.repeat_interleave(x * 2, (x[:, 0] > 0).long(), dim=0) + 1,
    "slice": lambda x: x[: int((x[:, 0] > 0).sum())].cos() * 2,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FNS)
def test_compiled_parts_and_their_gradients(name, dynamic):
    fn = FNS[name]
    burnish.reset()
    compiled = burnish.compile(fn, fullgraph=True, dynamic=dynamic, options={"never_slower": False})
    for (x,) in rows() * 2:
        x, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, wanted = compiled(x), fn(other)
        torch.testing.assert_close(found, wanted)
        if wanted.requires_grad:
            found.sum().backward()
            wanted.sum().backward()
            torch.testing.assert_close(x.grad, other.grad)
    assert captured(compiled).breaks == [] and captured(compiled).segments == 1


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_other_sizes_beside_those_from_data(size):
    def fn(x):
        return (x[x > 0].sum() + x.shape[0]) * x, x[x[:, 0] > 0].shape

    burnish.reset()
    compiled = burnish.compile(fn, fullgraph=True)
    for rows_of in (size, size + 1, size + 3, size):
        x = torch.linspace(-1, 1, rows_of * 4).view(rows_of, 4)
        torch.testing.assert_close(compiled(x), fn(x))


def test_what_squeeze_and_loops_return_breaks():
    for fn in (lambda x: x[x > 0].squeeze(), lambda x: [v + 1 for v in x[x > 0]], lambda x: x[x > 0].split(100)):
        burnish.reset()
        with pytest.raises(burnish.errors.Unsupported, match="B104|B103"):
            burnish.compile(fn, fullgraph=True)(torch.ones(3))


def test_the_graph_holds_ordinary_calls_for_a_users_backend():
    seen = []

    def backend(gm, example_inputs):
        seen.append([node.target for node in gm.graph.nodes if node.op.startswith("call")])
        return gm.forward

    def fn(x):
        y = x[x > 0]
        y.shape  # noqa: B018  # asked for, and not used
        return y.sum() * len(y)

    compiled = burnish.compile(fn, fullgraph=True, backend=backend)
    for (x,) in rows():
        assert torch.equal(compiled(x), fn(x))
    assert seen == [[operator.gt, operator.getitem, "size", "sum", operator.mul]]


def test_a_break_stays_without_fullgraph():
    reasons = burnish.explain(lambda x: x[x > 0] * 2)(torch.ones(3)).break_reasons
    assert [reason.source.kind.code for reason in reasons] == ["B104"]


def test_the_reason_why_eager_kernels_run_is_an_event():
    with recorded("lower.unbacked") as found:
        burnish.reset()
        burnish.compile(lambda x: (x * 2)[x > 0].sum(), fullgraph=True)(torch.ones(3))
    assert "depend on data" in found[0].data["text"]


@program(breaks=0)
def test_a_slice_leaves_few_sizes_for_its_limits():
    def fn(x):
        y = x[x > 0]
        first, last = y[:2], y.sort().values[-2:]
        n = y.shape[0]
        a, b = int((x[0] > 0).sum()), int((x[1] > 0).sum())
        parts = x.view(-1)[a : a + b].shape, x.view(-1)[a:b].numel(), x[:, None, a:b].shape, y[:-1000].shape
        rest = torch.zeros(n % 2, 3).shape, torch.ones(n // 100).numel(), y.view(1, -1)[..., :1000].shape
        return first.shape, first.sum(), last, parts, rest, x[x[:, 0] > 0, :n].shape

    return fn, [(x - 1,) for (x,) in rows()]
