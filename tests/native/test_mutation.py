"""Writes inside compiled code: to inputs, intermediates and views of both; and shared memory afterwards."""

import operator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish.settings import patch

from .compare_calls import compiled_with, equal_calls

ON_INPUTS = {
    "the whole": lambda x, y: x.add_(y),
    "twice": lambda x, y: x.add_(y).mul_(x),
    "a function": lambda x, y: x.sigmoid_() + y,
    "a function of two orders": lambda x, y: x.abs_().add_(1).polygamma_(1) + y,
    "bits are shifted": lambda x, y: (operator.ilshift(x.long(), 2), operator.irshift(y.long(), 1)),
    "a row": lambda x, y: x[1].mul_(y[0]),
    "every other column": lambda x, y: x[:, ::2].add_(y[:, ::2]),
    "a transposed one": lambda x, y: x.t().sub_(y.t()),
    "a diagonal": lambda x, y: x.diagonal().fill_(3) + y.diagonal(),
    "windows side by side": lambda x, y: x.unfold(1, 2, 2).add_(1),
    "an item": lambda x, y: x.__setitem__((0, 1), y[2, 3]),
    "items by a mask": lambda x, y: x.__setitem__(y > 0, 5.0),
    "items by an index": lambda x, y: x.__setitem__(torch.tensor([2, 0]), y[:2]),
    "windows are read after": lambda x, y: ((v := x.unfold(1, 3, 1)), x.add_(y), v * 2)[2],
    "through strides": lambda x, y: (x[1:].as_strided((2, 3), (6, 2)).mul_(y[:2, :3]), x * 2)[1],
    "read before and after": lambda x, y: (x + 0, x.add_(y), x * 1),
    "a view is read after the base was written": lambda x, y: ((v := x[1:], x.mul_(2))[0] + 0, v),
    "the base is read after a view was written": lambda x, y: (x[1:].mul_(2), x + 0),
    "copied over": lambda x, y: x.copy_(y.flip(0)),
    "copied from itself": lambda x, y: x.copy_(x.flip(1).clone()),
    "copied from itself, transposed": lambda x, y: x[:4, :4].copy_(x[:4, :4].t().clone()),
    "swapped": lambda x, y: ((t := x.clone(), x.copy_(y), y.copy_(t)), None)[1],
    "swapped by views": lambda x, y: (t := x[:2].clone(), x[:2].copy_(y[2:]), y[2:].copy_(t))[0],
    "crossed": lambda x, y: (t := y.clone(), y.copy_(x.roll(1, 0)), x.copy_(t))[0],
    "each from the other": lambda x, y: (x.add_(y), y.add_(x)),
    "filled and returned": lambda x, y: (x.zero_(), y.fill_(2)),
    "a narrower dtype": lambda x, y: x.copy_(y.double() / 3),
    "a scalar": lambda x, y: x.copy_(2),
    "out= of an input": lambda x, y: torch.mul(x, 2, out=y),
    "out= of a view": lambda x, y: torch.sin(x[0], out=y[1]),
    "out= of a factory": lambda x, y: (torch.eye(4, 6, out=y), torch.arange(6, out=x[0]), x * y),
    "out= of both": lambda x, y: torch.max(x, 1, out=(y[:, 0], torch.empty(4, dtype=torch.int64))),
}
ON_INTERMEDIATES = {
    "the whole": lambda x, y: (x + 1).mul_(y),
    "a view, read from the base": lambda x, y: ((z := x * 2)[1:3].add_(y[1:3]), z),
    "a view of a view": lambda x, y: ((z := x * 2)[1:].t()[::2].mul_(3), z),
    "two views that overlap": lambda x, y: ((z := x * 2)[:3].add_(1), z[1:].mul_(2), z),
    "a view kept from before": lambda x, y: ((z := x * 2), (v := z[0]), z.add_(y), v + 0, v)[1:],
    "a transposed base": lambda x, y: ((z := x.t() * 2), z.t().add_(y), z),
    "rows in a loop": lambda x, y: [(z := torch.zeros_like(x)), [z[i].copy_(x[i] * i + y[i]) for i in range(4)]][0],
    "a flipped copy": lambda x, y: (x.flip(0).add_(1), x * y),
    "a copy of a view": lambda x, y: (x.t().contiguous().add_(1), x),
    "a constant": lambda x, y: (torch.tensor([1.0, 2.0]).mul_(2), torch.zeros(3).add_(1)),
    "an expanded row is not written": lambda x, y: (x[:1].expand(4, 6).clone().add_(y), x),
    "filled by a factory": lambda x, y: (
        x + torch.eye(*x.size(), out=torch.empty_like(x)),
        torch.linspace(0, 1, 6, out=torch.empty(6, dtype=torch.float64)),
        torch.full((2,), 3, out=torch.empty(2)) + torch.ones(2, out=torch.empty(2, dtype=torch.int64)),
    ),
    "reshaped without a copy": lambda x, y: ((z := x + 1), z.view(-1)[3:5].zero_(), z),
    "reshaped in its own memory, and permuted inside": lambda x, y: (
        (z := torch.empty(6, 4).t()).copy_(x),
        z.t().view(-1)[3:7].zero_(),
        z * 2,
    )[2],
    "windows are read before and after": lambda x, y: (
        (z := x[0] * 2),
        (v := z.unfold(0, 3, 1)),
        v.sum(),
        z.add_(y[0]),
        v + 0,
        v,
        z,
    ),
    "windows of windows of what is transposed": lambda x, y: (
        (z := x.t() * 2),
        (v := z.unfold(0, 2, 1)[1:].unfold(1, 3, 1)),
        z[1].mul_(y[0, 0]),
        v * 2,
        z,
    )[2:],
    "bits are read after": lambda x, y: ((z := x * 2), (v := z.view(torch.int32)[1:]), z.add_(y), v + 1, z.mul_(y), v)[
        2:
    ],
    "strides of its own are read after": lambda x, y: (
        (z := x * 2),
        (v := z.as_strided((5, 3), (2, 1))),
        z.add_(y),
        v + 1,
    ),
    "reshaped with a copy": lambda x, y: ((z := x.t() + 1), z.reshape(-1)[3:5].zero_(), z),
    "split parts": lambda x, y: ((z := x + y), [part.mul_(k) for k, part in enumerate(z.split(2, 1))], z)[2],
    "unbound rows": lambda x, y: ((z := x + y), [row.add_(1) for row in z.unbind(0)], z)[2],
    "a cast": lambda x, y: ((z := (x * 3).int()).add_(2), z.float().div_(2)),
}
OUTPUTS = {
    "an input": lambda x, y: x,
    "an input twice": lambda x, y: (x, x),
    "views of an input": lambda x, y: (x.t(), x[1:], x[1:, ::2], x.view(-1)),
    "a value twice": lambda x, y: (z := x + y, z),
    "equal values": lambda x, y: (x + y, x + y),
    "equal values and their views": lambda x, y: ((a := x + y), a.t(), (b := x + y), b[0]),
    "views of a value": lambda x, y: ((z := x + y).t(), z[1:], z.view(-1)[2:4]),
    "a flipped copy and a view of it": lambda x, y: ((z := x.flip((0, 1))), z[None], y),
    "views of a flipped copy": lambda x, y: ((z := x.flip(0)).t(), z[1:], x[1:]),
    "views of a repeated one": lambda x, y: ((z := x.repeat(2, 2))[3], z.view(-1)),
    "views alone": lambda x, y: (torch.softmax(x, -1)[0], torch.softmax(x, -1)[:, 1]),
    "parts of a value": lambda x, y: (x * y).split((2, 4), 1),
    "a copy that changes nothing": lambda x, y: (x.clone(), x * 1, x + 0, x.to(torch.float32, copy=True)),
    "a sum over nothing": lambda x, y: (x[0, 0].sum(), x[0, 0]),
    "constants": lambda x, y: (torch.zeros(2), torch.zeros(2), torch.tensor([1, 2]), torch.arange(3)),
    "of a product": lambda x, y: ((z := x @ y.t()), z.t(), z[0]),
    "with other strides inside": lambda x, y: F.softmin((x + y).t(), 0).split((1, 3), 1),
}


def inputs():
    return torch.randn(4, 6), torch.randn(4, 6)


@pytest.mark.parametrize("name", ON_INPUTS)
def test_inputs_are_written_as_in_eager(name):
    equal_calls(ON_INPUTS[name], *inputs(), ways=("native", "library", "refused"))


@pytest.mark.parametrize("name", ON_INTERMEDIATES)
def test_intermediates_are_written_as_in_eager(name):
    equal_calls(ON_INTERMEDIATES[name], *inputs())


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_share_memory_where_eagers_do(name):
    equal_calls(OUTPUTS[name], *inputs())


@pytest.mark.parametrize("name", OUTPUTS)
def test_callers_changes_to_results_are_not_seen_by_the_next_call(name):
    fn = OUTPUTS[name]
    x, y = inputs()
    compiled = compiled_with(fn, x, y)
    for _ in range(2):
        with torch.no_grad():
            given, other = (x.clone(), y.clone()), (x.clone(), y.clone())
            found, wanted = compiled(*given), fn(*other)
            torch.testing.assert_close(found, wanted)
            for result in (found, wanted):
                for part in result if isinstance(result, tuple) else (result,):
                    part.add_(1)
            torch.testing.assert_close(found, wanted)
            torch.testing.assert_close(given, other)


def views_of_one():
    base = torch.randn(6, 6)
    return base[:4], base[2:]


@pytest.mark.parametrize("name", ["the whole", "a row", "copied over", "read before and after", "each from the other"])
def test_inputs_that_overlap(name):
    # Eager itself refuses to write where source and target overlap in part; then so does compiled code.
    equal_calls(ON_INPUTS[name], *views_of_one(), ways=("native", "library", "refused", "views"))


def test_one_tensor_given_twice():
    x = torch.randn(4, 6)
    equal_calls(lambda a, b: (a.add_(1), b * 2, a), x, x, ways=("native", "refused"))


def test_the_memory_format_of_a_result_may_be_another_inside():
    def fn(x, w):
        y = F.conv2d(x, w)
        return y, y[:, 1:], y.relu()

    equal_calls(fn, torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        self.count += 1
        self.last.copy_(x.sum(0))
        return x * self.count


def test_buffers_are_updated():
    eager, model = Counter(), Counter()
    compiled = burnish.compile(model, backend="burnish")
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        for k in range(4):
            x = torch.full((2, 3), float(k))
            torch.testing.assert_close(compiled(x), eager(x), rtol=0, atol=0)
            torch.testing.assert_close(model.state_dict(), eager.state_dict(), rtol=0, atol=0)


def test_running_statistics_are_updated_in_training():
    eager, model = nn.BatchNorm1d(5), nn.BatchNorm1d(5)
    compiled = burnish.compile(lambda x: (model(x), model.running_mean * 2), backend="burnish")
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        for _ in range(4):
            x = torch.randn(8, 5)
            torch.testing.assert_close(compiled(x), (eager(x), eager.running_mean * 2))
            torch.testing.assert_close(model.state_dict(), eager.state_dict())


@pytest.mark.parametrize("name", ["the whole", "a row", "copied over", "read before and after", "each from the other"])
def test_inputs_that_overlap_in_a_later_call(name):
    fn = ON_INPUTS[name]
    compiled = compiled_with(fn, *(x[:] for x in inputs()))
    with torch.no_grad(), patch(never_slower=False, on_error="raise"):
        for _ in range(3):
            compiled(torch.zeros(8, 6)[:4], torch.ones(8, 6)[:4])
        for shift in (1, 2, 4):
            first, second = torch.arange(48.0).view(8, 6), torch.arange(48.0).view(8, 6)
            try:
                fn(first[:4], first[shift : shift + 4])
            except RuntimeError:  # eager refuses to read and write in one place
                with pytest.raises(RuntimeError):
                    compiled(second[:4], second[shift : shift + 4])
                continue
            compiled(second[:4], second[shift : shift + 4])
            torch.testing.assert_close(second, first)


THROUGH_DATA = {
    "whole": lambda p, other: p.data.mul_(2),
    "parts": lambda p, other: (p.data[0].mul_(2), p.data.t().add_(1)),
    "items": lambda p, other: p.data.__setitem__(0, 3.0),
    "exchange": lambda p, other: (kept := p.data.clone(), p.data.copy_(other), other.data.copy_(kept)),
    "lists": lambda p, other: torch._foreach_mul_([p.data, other.data], 0.5),
}


@pytest.mark.parametrize("write", THROUGH_DATA.values(), ids=THROUGH_DATA)
def test_a_write_through_data_leaves_the_version_and_what_was_saved(write):
    def fn(p, other, x):
        write(p, other)
        return x + 1

    compiled = burnish.compile(fn, options={"never_slower": False})
    pairs = [[torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)), torch.ones(2, 3)] for _ in range(2)]
    for _ in range(3):
        for run, (p, other) in zip((fn, compiled), pairs, strict=True):
            versions = p._version, other._version
            total = (p * p * other).sum()
            p.grad = None
            run(p, other, torch.ones(2))
            assert versions == (p._version, other._version)
            total.backward()
        torch.testing.assert_close(*pairs)
        torch.testing.assert_close(pairs[0][0].grad, pairs[1][0].grad)
    assert burnish.was_compiled(compiled)


@torch.library.custom_op("burnish_tests::positive_part", mutates_args=())
def positive_part(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_a_write_through_data_is_not_repeated_when_results_differ(backend):
    def fn(p, x):
        p.data.mul_(2)
        return positive_part(x * 2) * 2

    compiled = burnish.compile(fn, backend=backend)
    ours, theirs = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    for count in (1, 3, 2, 2, 4):
        x = -torch.ones(6)
        x[:count] = 1
        torch.testing.assert_close(compiled(ours, x), fn(theirs, x))
        assert torch.equal(ours, theirs)
