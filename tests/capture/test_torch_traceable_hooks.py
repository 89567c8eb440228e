"""Hooks on gradients of intermediate results, in graphs for other compilers than ours."""

import functools

import pytest
import torch

import burnish

SCALE = 3.0


def tripled(gradient):
    return gradient * SCALE


def closure(x, y):
    h, s = x.sin(), y.cos()
    h.register_hook(lambda g: g * s.detach())
    return h.sum()


def number(x, y):
    h = x.sin()
    k = x.shape[0]
    h.register_hook(lambda g: g / k)
    return (h * y).sum()


def of_a_module(x, y):
    h = x * y
    h.register_hook(tripled)
    return h.exp().sum()


def of_torch(x, y):
    h = (x * y).sqrt()
    h.register_hook(torch.nan_to_num)
    return h.sum()


def partial(x, y):
    h = x * y
    h.register_hook(functools.partial(torch.mul, other=2.0))
    return h.exp().sum()


def in_a_loop(x, y):
    parts = []
    for i in range(3):
        h = x * (y + i)
        h.register_hook(lambda g, i=i: g * (i + 1))
        parts.append(h)
    return sum(parts).sum()


def of_a_result(x, y):
    h = x * y
    h.register_hook(tripled)
    return h


PROGRAMS = [closure, number, of_a_module, of_torch, partial, in_a_loop, of_a_result]


def leaves(seed):
    torch.manual_seed(seed)
    return [torch.randn(4, requires_grad=True) for _ in range(2)]


def gradients(run, seed):
    given = leaves(seed)
    run(*given).sum().backward()
    return [torch.zeros(4) if x.grad is None else x.grad for x in given]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_hooks_of_tensor_code_are_part_of_graphs_for_other_compilers(fn):
    def as_it_is(gm, example_inputs):
        return gm.forward

    for backend in ("aot_eager", as_it_is, "burnish"):
        compiled = burnish.compile(fn, backend=backend, fullgraph=True)
        for seed in range(3):
            torch.testing.assert_close(gradients(compiled, seed), gradients(fn, seed), equal_nan=True)
        assert burnish.was_compiled(compiled)


def graph_count(fn, calls=3):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = burnish.compile(fn, backend=backend)
    for seed in range(calls):
        torch.testing.assert_close(gradients(compiled, seed), gradients(fn, seed))
    return len(graphs)


seen: list = []
shared = torch.full((4,), 2.0)


def notes(x, y):
    h = x * y
    h.register_hook(lambda g: seen.append(g.sum()))
    return h.exp().sum()


def prints(x, y):
    h = x * y
    h.register_hook(print)
    return h.exp().sum()


def reads_data(x, y):
    h = x * y
    h.register_hook(lambda g: g * g.sum().item())
    return h.exp().sum()


def branches(x, y):
    h = x * y
    h.register_hook(lambda g: g * 2 if g.sum() > 0 else g)
    return h.exp().sum()


def reads_a_global_tensor(x, y):
    h = x * y
    h.register_hook(lambda g: g * shared)
    return h.exp().sum()


def keeps_the_handle(x, y):
    h = x * y
    handle = h.register_hook(tripled)
    handle.remove()
    return h.exp().sum()


@pytest.mark.parametrize(
    "fn", [notes, prints, reads_data, branches, reads_a_global_tensor, keeps_the_handle], ids=lambda fn: fn.__name__
)
def test_other_hooks_end_such_a_graph(fn):
    assert graph_count(fn) == 2


def test_a_number_that_a_hook_reads_is_guarded(monkeypatch):
    compiled = burnish.compile(of_a_module, backend="aot_eager")
    for scale in (3.0, 3.0, 5.0):
        monkeypatch.setattr(f"{__name__}.SCALE", scale)
        torch.testing.assert_close(gradients(compiled, 0), gradients(of_a_module, 0))


class Branching(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.is_negative = bool(x.sum() < 0)
        return -x if ctx.is_negative else x * 2

    @staticmethod
    def backward(ctx, gradient):
        return -gradient if ctx.is_negative else gradient * 2


def test_custom_function_that_reads_data_ends_a_graph_for_other_compilers():
    def fn(x, y):
        return (Branching.apply(x.sin()) * y).sum()

    compiled = burnish.compile(fn, backend="aot_eager")
    for seed in range(4):
        torch.testing.assert_close(gradients(compiled, seed), gradients(fn, seed))
