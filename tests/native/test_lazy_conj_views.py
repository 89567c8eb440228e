"""Lazily conjugated and negated tensors as results and inputs: what makes them is compiled, and they stay views."""

import pytest
import torch
from torch import nn

import burnish
from burnish.report.collect_fallbacks import collect_fallbacks

from .compare_training import alike

WORK = {
    "a conjugate": lambda x: (x * 2).exp().conj(),
    "a conjugate beside its tensor": lambda x: ((y := x.sin() + 1), y.conj(), y.abs()),
    "a part of a conjugate": lambda x: (x.cos() * 2).conj()[1:, :2],
    "a conjugate transpose": lambda x: (x + 1).sin().mH,
    "the attribute H": lambda x: (x + 1).sin().H,
    "the method adjoint": lambda x: torch.adjoint(x.cos()),
    "a negated imaginary part": lambda x: (x.sin() * 3).conj().imag,
    "a real part of a conjugate": lambda x: x.cos().conj().real,
    "rows of a conjugate": lambda x: x.sin().conj().unbind(),
    "a reshaped conjugate": lambda x: x.sin().conj().view(-1).unsqueeze(0),
    "a part by a size": lambda x: x.sin().conj()[: x.shape[0] // 2],
    "a spectrum": lambda x: torch.fft.fft(x, dim=0).conj(),
    "a product with one": lambda x: ((x @ x.mH).abs().sum(), x.mH.sin(), x.mH),
    "a conjugate of a keyword": lambda x: torch.conj(input=x.sin()),
}
VIEWS = {
    "a conjugate of an input": lambda x: (x.conj(), x.sin()),
    "a conjugate of a conjugate": lambda x: (x.conj().conj(), x.sin()),
    "a part of an adjoint's adjoint": lambda x: (x.mH.mH[0], x.cos() + 1),
    "a real part": lambda x: (x.conj().real, x.exp()),
    "an imaginary part": lambda x: (x.conj().imag, x.exp()),
    "nothing else": lambda x: x.H,
    "a keyword": lambda x: (torch.conj(input=torch.conj(input=x)), x.exp()),
    "the shape of another": lambda x: (x.conj().view_as(x), x.exp().conj().expand_as(x), x.exp()),
}
COPIES = {
    "a reshaped conjugate transpose": lambda x: x.mH.reshape(-1),
    "a flat conjugate transpose": lambda x: x.mH.flatten(),
    "the method ravel": lambda x: x.mH.ravel(),
    "the shape of another": lambda x: x.mH.reshape_as(x),
    "a part flattened": lambda x: x.conj().mT.unflatten(0, (3, 1)).flatten(1),
    "an expanded one flattened": lambda x: x.mH.unsqueeze(0).expand(2, -1, -1).flatten(0, 1),
}
WRITES = {
    "its tensor": lambda x: ((y := x.sin()), (z := y.conj()), y.mul_(2), z)[1:],
    "an input before": lambda x: (x.mul_(2), x.conj())[1:],
    "an input after": lambda x: ((y := x.H), x.mul_(1.5), y)[2:],
    "an input that is negated": lambda x: (x.mul_(1.5), torch._neg_view(x))[1:],
    "a part of it": lambda x: ((y := x * 2), (z := y.conj()[:2]), y[0].add_(1), z)[3:],
    "the result": lambda x: ((y := x.sin()), y.mH.reshape(-1).mul_(2)),
    "an item": lambda x: ((y := x * 2), (z := y.mH), y.__setitem__(0, 1), z)[3:],
    "an input and axes move": lambda x: (x.mul_(2), torch.einsum("ij->ji", x.conj()))[1:],
    "an out": lambda x: ((y := torch.empty_like(x)), (z := y.conj()), torch.sin(x.detach(), out=y.detach()), z)[3:],
}
UNKNOWN = {
    "a product that moves axes": lambda x: (torch.einsum("ij->ji", x.conj().conj()), x.exp()),
    "a reshape that copies nothing": lambda x: (x.mH.mH.reshape(-1), x.exp()),
    "a plus sign": lambda x: (torch.positive(x.conj()).conj(), x.exp()),
}


def numbers(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.complex(*torch.randn(2, rows, 3, generator=generator))


def parts(made):
    return list(made) if isinstance(made, (tuple, list)) else [made]


def facts(made, x):
    start = x.untyped_storage().data_ptr()
    return [
        (y.shape, y.stride(), y.dtype, y.is_conj(), y.is_neg(), y._is_view(), y.untyped_storage().data_ptr() == start)
        for y in parts(made)
    ]


def equal(compiled, fn, x):
    got, want = compiled(x), fn(x)
    assert facts(got, x) == facts(want, x)
    for a, b in zip(parts(got), parts(want), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [*WORK, *VIEWS])
def test_lazy_views_are_results_of_compiled_graphs_of_any_size(name):
    fn = {**WORK, **VIEWS}[name]
    compiled = burnish.compile(fn, fullgraph=True)
    with torch.no_grad():
        for i in range(12):
            equal(compiled, fn, numbers(4 + i % 6, i))


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_the_input_shows_in_a_lazy_view_of_it(name):
    fn = VIEWS[name]
    compiled = burnish.compile(fn)
    for i in range(3):
        x = numbers(4, i)
        shown = parts(compiled(x))[0]
        with torch.no_grad():
            x.zero_()
        assert shown.abs().max() == 0


@pytest.mark.parametrize("name", WORK)
def test_a_lazily_conjugated_input_is_compiled(name):
    fn = WORK[name]
    compiled = burnish.compile(fn, fullgraph=True)
    with torch.no_grad():
        for i in range(4):
            equal(compiled, fn, numbers(4, i).conj())


class Twice(nn.Module):
    """A graph break between makes the lazy result of one graph an input of the next."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn
        self.weight = nn.Parameter(numbers(4, 7))

    def forward(self, x):
        made = parts(self.fn(x * self.weight))
        torch._dynamo.graph_break()
        return sum((y.abs() * 2).sin().sum() for y in made)


@pytest.mark.parametrize("name", WORK)
def test_gradients_flow_through_lazy_views_at_a_graph_break(name):
    def build(compiler):
        model = Twice(WORK[name])
        run = compiler(model)

        def step(x):
            model.zero_grad()
            loss = run(x)
            loss.backward()
            return loss.detach()

        return step, (model,)

    seen = alike(build, lambda i: (numbers(4, i),), steps=4)
    assert seen.refused == []


@pytest.mark.falls_back("refused", "sizes")
@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_a_lazy_view_does_not_show_a_later_write(name, is_lazy):
    copy = COPIES[name]

    def fn(x):
        y = copy(x)
        x.mul_(2)
        return y

    compiled = burnish.compile(fn)
    for i in range(6):
        mine, its = (numbers(4 + i % 3, i) for _ in range(2))
        if is_lazy:
            mine, its = mine.conj(), its.conj()
        torch.testing.assert_close(compiled(its), fn(mine))
        torch.testing.assert_close(its, mine)


@pytest.mark.falls_back("refused", "sizes")
@pytest.mark.parametrize("kind", ["plain", "lazy", "with gradients", "lazy with gradients"])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_beside_a_lazy_view_is_as_in_eager(name, kind):
    fn = WRITES[name]
    compiled = burnish.compile(fn)
    for i in range(8):
        starts = [numbers(4 + i % 3, i).requires_grad_("gradients" in kind) for _ in range(2)]
        mine, its = ((x * 1).conj() if "lazy" in kind else x * 1 for x in starts)
        want, got = parts(fn(mine)), parts(compiled(its))
        assert facts(got, its) == facts(want, mine)
        for a, b in zip([*got, its], [*want, mine], strict=True):
            torch.testing.assert_close(a, b)
        if want[0].requires_grad:
            for made in (want, got):
                sum((y * (1 + 2j)).real.sum() for y in made).backward()
            torch.testing.assert_close(starts[1].grad, starts[0].grad)


@pytest.mark.falls_back("refused")
def test_a_graph_that_writes_beside_a_lazy_input_runs_eagerly_and_says_so():
    def fn(x):
        return x.clone().pow_(2) * 1

    compiled = burnish.compile(fn)
    with collect_fallbacks() as found:
        for i in range(4):
            equal(compiled, fn, numbers(3 + i, i).conj())
    assert {fallback.cause for fallback in found} == {"refused"}
    assert all("it writes to tensors" in str(fallback) for fallback in found)


def test_a_write_beside_what_is_computed_from_a_conjugate_is_compiled():
    def fn(x):
        y = (x.sin() @ x.mH).abs()
        y.add_(1)
        return y, x.conj().real.sum()

    compiled = burnish.compile(fn, fullgraph=True)
    for i in range(3):
        equal(compiled, fn, numbers(4, i))


@pytest.mark.falls_back("refused", "sizes")
@pytest.mark.parametrize("name", UNKNOWN)
def test_a_view_of_a_lazy_tensor_by_any_call_shares_its_memory(name):
    compiled = burnish.compile(UNKNOWN[name])
    with torch.no_grad():
        for i in range(6):
            equal(compiled, UNKNOWN[name], numbers(4 + i % 3, i))


@pytest.mark.falls_back("refused")
def test_a_lazy_view_of_an_input_that_gradients_flow_into_shows_what_was_written():
    def fn(x):
        x.mul_(2)
        return x.conj(), x.mH.mH

    compiled = burnish.compile(fn)
    for i in range(12):
        mine, its = (numbers(4 + i % 5, i).requires_grad_() for _ in range(2))
        want, got = fn(mine * 1), compiled(its * 1)
        for a, b in zip(got, want, strict=True):
            assert (a.is_conj(), a._is_view()) == (b.is_conj(), b._is_view())
            torch.testing.assert_close(a, b)
        sum(y.abs().sum() for y in want).backward()
        sum(y.abs().sum() for y in got).backward()
        torch.testing.assert_close(its.grad, mine.grad)
