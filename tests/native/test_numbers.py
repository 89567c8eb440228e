"""Floats that differ from call to call: one compilation takes them all, and what they do is what Python numbers do."""

import pytest
import torch
from torch.nn import functional as F

import burnish
from burnish import events
from burnish.settings import patch

PROGRAMS = {
    "beside a tensor": lambda x, s: (x * s, s - x, x / s, torch.add(x, x, alpha=s)),
    "beside whole numbers": lambda x, s: (x.int() * s, x.int() + s),
    "beside half precision": lambda x, s: (x.bfloat16() * s, x.half() - s),
    "beside double precision": lambda x, s: (x.double() * s, x.double().add(x, alpha=s)),
    "as an option": lambda x, s: (F.leaky_relu(x, s), x.addcmul(x, x, value=-s), x.clamp(-s, s)),
    "as a limit": lambda x, s: (x > s, torch.where(x < s, x, s)),
    "made from others": lambda x, s: x * (1 - s**2) / (s + 1),
    "without a tensor's dimensions": lambda x, s: (x.sum() * s, x.mean() - s),
    "in what is drawn": lambda x, s: F.dropout(x, min(abs(s), 1.0)) + 1,
    "as a new tensor": lambda x, s: x + torch.full((3,), s) + torch.tensor(s),
    "alone": lambda x, s: (x * 2, s * 2),
}
VALUES = (0.5, 0.25, 2.0, 1.0, 0.0, -1.5, 1e-3, 3.0, 7.25, 1e6, 0.125)


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_are_pythons(name):
    fn = PROGRAMS[name]
    x = torch.tensor([[-2.0, 0.5, 3.0], [1.0, -0.25, 8.0]])
    with torch.no_grad(), patch(never_slower=False, on_error="raise", eager_random=True):
        run = burnish.compile(fn)
        for value in VALUES:
            torch.manual_seed(0)
            want = fn(x, value)
            torch.manual_seed(0)
            torch.testing.assert_close(run(x, value), want)


def test_one_compilation_takes_all_floats():
    compiled = []
    stop = events.subscribe(lambda e: compiled.append(e) if e.kind == "loops" else None)
    try:
        with torch.no_grad(), patch(never_slower=False, on_error="raise"):
            run = burnish.compile(lambda x, s: (x * s).exp())
            for k in range(40):
                run(torch.ones(3), 0.01 * k)
    finally:
        stop()
    assert 0 < len(compiled) <= 2, "once for the first number, once for all others"


@pytest.mark.parametrize("kind", (int, float))
def test_numbers_beside_an_input_that_is_written_to(kind):
    def fn(x, n):
        y = x * n
        x.add_(1.0)
        return y

    with patch(never_slower=False, on_error="raise"):
        run = burnish.compile(fn)
        for n in map(kind, range(6)):
            x = torch.ones(3)
            assert torch.equal(run(x, n), torch.full((3,), float(n)))
            assert torch.equal(x, torch.full((3,), 2.0))


def test_numbers_that_backward_reads():
    """Autograd saves tensors alone."""
    def fn(x, w, s):
        return (F.linear(x, w) * s).square().mean() + s * w.square().mean()

    failed = []
    stop = events.subscribe(lambda e: failed.append(e.data["text"]) if e.kind == "graph.failed" else None)
    try:
        with patch(never_slower=False, on_error="raise"):
            run, x = burnish.compile(fn), torch.randn(4, 3)
            for value in VALUES:
                w = torch.randn(2, 3, requires_grad=True)
                found, = torch.autograd.grad(run(x, w, value), w)
                torch.testing.assert_close(found, torch.autograd.grad(fn(x, w, value), w)[0])
    finally:
        stop()
    assert not failed
