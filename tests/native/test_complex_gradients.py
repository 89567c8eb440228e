"""Gradients through complex numbers: torch's formulas and conjugates, between kernels for the real parts."""

import pytest
import torch
from torch import nn

import burnish
from burnish.settings import patch

from .compare_training import alike


def as_complex(x):
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))


def rotated(y, x):
    angles = torch.polar(torch.ones(4, 4), torch.arange(16.0).reshape(4, 4))
    return torch.view_as_real(as_complex(y) * angles).flatten(1).sin()


def filtered(y, x):
    return torch.fft.irfft(torch.fft.rfft(y) * torch.fft.rfft(x), n=8).tanh()


PROGRAMS = {
    "spectrum": lambda y, x: torch.view_as_real(torch.fft.fft(y)).square(),
    "magnitude": lambda y, x: torch.fft.fft2(y).abs(),
    "angle": lambda y, x: torch.angle(as_complex(y) + 3).sin(),
    "filter": filtered,
    "rotation": rotated,
    "conjugates": lambda y, x: (as_complex(y) * as_complex(x).conj()).real + as_complex(y).conj().imag.sin(),
    "product": lambda y, x: (as_complex(y) @ as_complex(y).mH).abs(),
    "polar": lambda y, x: torch.polar(y.abs() + 1, x).imag,
    "written": lambda y, x: torch.view_as_real(
        torch.zeros(4, 4, dtype=torch.complex64).index_copy(0, torch.tensor([2, 0, 1, 3]), as_complex(y).conj())
    ).exp(),
}


@pytest.mark.parametrize("is_whole", [False, True], ids=["forward", "whole step"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_flow_through_complex_numbers(name, is_whole):
    def build(compiler):
        model = nn.Linear(8, 8)

        def loss_of(x):
            return PROGRAMS[name](model(x), x).mean()

        loss = loss_of if is_whole else compiler(loss_of)

        def step(x):
            model.zero_grad()
            value = loss(x)
            value.backward()
            return value.detach(), x.grad

        return compiler(step) if is_whole else step, (model,)

    seen = alike(build, lambda i: (torch.randn(4, 8, requires_grad=True),), steps=3)
    assert (seen.breaks, seen.refused, seen.given_up) == ([], [], [])


def test_complex_parameters_and_results():
    def build(compiler):
        weight = nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))
        run = compiler(lambda x: as_complex(x) @ weight.exp())

        def step(x):
            weight.grad = None
            y = run(x)
            (y * y.conj()).real.sum().backward()
            return y.detach(), x.grad, weight.grad

        return step, ()

    assert alike(build, lambda i: (torch.randn(3, 8, requires_grad=True),), steps=3).refused == []


@pytest.mark.falls_back("refused")
def test_a_result_that_is_conjugated_lazily_stays_so():
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(lambda x: as_complex(x).conj(), fullgraph=True)
        for _ in range(3):
            x = torch.randn(3, 8, requires_grad=True)
            y = compiled(x)
            assert y.is_conj() and torch.equal(y, as_complex(x).conj())


def test_a_lazily_negated_incoming_gradient_is_resolved():
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(lambda x: x.sin() * 2, fullgraph=True)
        for _ in range(3):
            x, gradient = torch.randn(4, requires_grad=True), torch._neg_view(torch.randn(4))
            compiled(x).backward(gradient)
            torch.testing.assert_close(x.grad, 2 * x.detach().cos() * gradient)
