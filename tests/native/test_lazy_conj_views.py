"""Lazily conjugated and negated tensors as results and inputs: what makes them is compiled, and they stay views."""

import pytest
import torch
from torch import nn

import burnish

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
    "a tensor that is written to": lambda x: ((y := x.sin()), (z := y.conj()), y.mul_(2), z)[1:],
}
VIEWS = {
    "a conjugate of an input": lambda x: (x.conj(), x.sin()),
    "a conjugate of a conjugate": lambda x: (x.conj().conj(), x.sin()),
    "a part of an adjoint's adjoint": lambda x: (x.mH.mH[0], x.cos() + 1),
    "a real part": lambda x: (x.conj().real, x.exp()),
    "an imaginary part": lambda x: (x.conj().imag, x.exp()),
    "nothing else": lambda x: x.H,
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


@pytest.mark.parametrize("name", [name for name in WORK if name != "a tensor that is written to"])
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
