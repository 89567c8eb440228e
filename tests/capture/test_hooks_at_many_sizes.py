"""Gradient hooks of tensors and of modules while sizes change: one graph for all sizes, and eager's gradients."""

import contextlib

import pytest
import torch

import burnish
from burnish import events

SIZES = (4, 5, 9, 3, 17, 2, 8, 30, 1, 6, 12)


@contextlib.contextmanager
def float64_by_default():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def check(make, most, backend="burnish"):
    """``make(seen)`` returns a function of x and the tensors that get gradients, besides x."""
    segments, found = [], []
    for compiles in (False, True):
        torch.manual_seed(0)
        burnish.reset()
        seen, results = [], []
        with float64_by_default():
            fn, weights = make(seen)
        if compiles:
            fn = burnish.compile(fn, backend=backend, options={"never_slower": False} if backend == "burnish" else None)
        stop = events.subscribe(segments.append, ("segment",))
        for size in SIZES:
            x = torch.linspace(-1, 1, size * 3, dtype=torch.float64).view(size, 3).requires_grad_()
            made = fn(x)
            made.sum().backward()
            results += [made.detach(), x.grad, *[weight.grad for weight in weights]]
            for weight in weights:
                weight.grad = None
        stop()
        found.append((results, seen))
    (want, wanted), (got, gotten) = found
    torch.testing.assert_close(got, want)
    assert gotten == wanted
    assert len(segments) <= most


@pytest.mark.parametrize("backend", ["burnish", "eager"])
def test_a_hook_on_a_result(backend):
    def make(seen):
        weight = torch.randn(3, 3, requires_grad=True)

        def fn(x):
            y = x @ weight
            y.register_hook(lambda gradient: gradient * 2 + gradient.shape[0])
            y.register_hook(lambda gradient: seen.append(tuple(gradient.shape)))
            return y.sin() * y.shape[0]

        return fn, [weight]

    check(make, 3, backend)


@pytest.mark.parametrize("backend", ["burnish", "eager"])
def test_a_hook_that_knows_the_size(backend):
    def make(seen):
        def fn(x):
            y, count = x.cos(), x.shape[0]
            half = y[: count - 1]
            half.register_hook(lambda gradient: gradient / count)
            half.retain_grad()
            return half.exp() + x.sum() * half.shape[0]

        return fn, []

    check(make, 3, backend)


def test_a_hook_on_a_leaf():
    def make(seen):
        weight = torch.randn(3, requires_grad=True)

        def fn(x):
            x.register_hook(lambda gradient: seen.append(gradient.shape))
            return (x * weight).tanh()

        return fn, [weight]

    check(make, 3)


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize("backend", ["burnish", "eager"])
def test_hooks_of_a_module(scale, backend):
    def make(seen):
        layer = torch.nn.Linear(3, 4)

        def hook(module, before, after):
            seen.append([tuple(x.shape) for x in (*before, *after)])
            return None if scale is None else tuple(x * scale for x in before)

        layer.register_full_backward_hook(hook)
        layer.register_full_backward_pre_hook(lambda module, after: tuple(x + 1 for x in after))
        return lambda x: layer(x.sin()).cos() * x.shape[0], list(layer.parameters())

    check(make, 3, backend)


def test_hooks_of_a_module_of_several_inputs_and_outputs():
    class Split(torch.nn.Module):
        def forward(self, x, y, name):
            return x[1:] * y.sum(0), (x - y).flatten()

    def make(seen):
        split = Split()
        split.register_full_backward_hook(
            lambda module, before, after: seen.append([x if x is None else tuple(x.shape) for x in (*before, *after)])
        )

        def fn(x):
            one, other = split(x.sin(), x.exp(), "name")
            return one.sum() * other

        return fn, []

    check(make, 4)


def test_parts_around_a_branch_are_compiled_for_all_sizes():
    """Every part was compiled for each of the first eight sizes, and ran eagerly on others."""

    def fn(x, y):
        count = x.shape[0]
        h = (x.sin() @ x.t()).softmax(-1) * count

        h = torch.cond(h.sum() > 0, lambda h: h.exp() * count, lambda h: h.cos() - 1, (h,))
        return (h[1:] + y).relu().sum(1) * 2, h.t().reshape(-1)

    open_programs = []
    stop = events.subscribe(lambda event: open_programs.append(event.data["text"]), ("guards.sizes",))
    compiled = burnish.compile(fn, options={"never_slower": False})
    with torch.no_grad():
        for count in (4, 5, 9, 3, 17, 2, 8, 30, 6, 12, 21, 11, 9, 3):
            torch.manual_seed(count)
            x, y = torch.randn(count, 3).double(), torch.randn(count).double()
            torch.testing.assert_close(compiled(x, y), fn(x, y))
    stop()
    assert sum(text.startswith("compiled for all") for text in open_programs) >= 3
    assert not any(text.startswith("compiled for each") for text in open_programs)


def test_relations_of_sizes_that_hold_in_two_calls_only():
    """The sizes of two inputs grow by the same at first, and then do not."""

    def fn(x, y, z):
        h = torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: x.cos(), (x,))
        return h.sum(0) + y.sin().sum(0), (h @ z.t()).softmax(-1), torch.cat([y * 2, z])

    compiled = burnish.compile(fn, options={"never_slower": False})
    with torch.no_grad():
        for sizes in (
            (4, 6, 3),
            (5, 7, 4),
            (9, 11, 8),
            (7, 9, 6),
            (9, 4, 8),
            (5, 3, 9),
            (2, 30, 4),
            (6, 6, 6),
            (1, 5, 9),
        ):
            torch.manual_seed(sum(sizes))
            args = [torch.randn(size, 4).double() for size in sizes]
            for _ in range(2):
                torch.testing.assert_close(compiled(*args), fn(*args))
        for size in (5, 9, 12, 33):
            args = [torch.randn(size + more, 4).double() for more in (0, 2, -1)]
            args[1] = args[1].t().contiguous().t()
            for _ in range(2):
                torch.testing.assert_close(compiled(*args), fn(*args))
