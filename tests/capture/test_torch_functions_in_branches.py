"""What branches of torch.cond and functions of loops may contain: random numbers, norms, custom autograd functions."""

import pytest
import torch
from torch import nn

import burnish

from .test_torch_cond import X, both, with_all_backends

MATRIX = torch.stack([X, X * 2, X + 1])


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        return x**3 * factor

    @staticmethod
    def backward(ctx, gradient):
        return 5 * ctx.saved_tensors[0] * gradient, None  # its own formula


class AddsOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@with_all_backends
def test_a_branch_calls_a_custom_function(backend):
    both(lambda x: torch.cond(x.sum() > 0, lambda t: Cubed.apply(t, 2.0), torch.cos, (x,)) + 1, X, backend=backend)


@with_all_backends
def test_a_branch_gives_a_tensor_of_its_closure_to_a_custom_function(backend):
    def fn(x, w):
        return torch.cond(x.sum() > 0, lambda t: Cubed.apply(t * w, 2.0), lambda t: t * w, (x,))

    both(fn, X, X + 3, backend=backend)


def test_a_custom_function_that_writes_ends_the_graph_before_the_branch():
    def fn(x):
        y = x * 2
        return torch.cond(x.sum() > 0, lambda: AddsOne.apply(y) * 1, lambda: y * 3)

    with pytest.raises(burnish.Unsupported, match="AddsOne.apply"):
        burnish.compile(fn, fullgraph=True)(X)


@with_all_backends
def test_a_mapped_function_calls_a_custom_function(backend):
    from torch._higher_order_ops.map import map as map_elements

    both(lambda x: map_elements(lambda t: Cubed.apply(t, 2.0), x), MATRIX, backend=backend)


@with_all_backends
@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_a_branch_normalizes_by_statistics(backend, kind):
    norm = kind(3, track_running_stats=True).eval()
    norm.running_mean.add_(1)

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = norm

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda t: self.norm(t), lambda t: t * 2, (x,))

    both(Gated(), MATRIX[None] if kind is nn.InstanceNorm1d else MATRIX, backend=backend)


def test_a_branch_that_updates_statistics_ends_the_graph():
    norm = nn.BatchNorm1d(3)
    for call in (
        norm,
        lambda x: torch.batch_norm(x, None, None, norm.running_mean, norm.running_var, True, 0.1, 1e-5, False),
    ):
        with pytest.raises(burnish.Unsupported, match="a change of a tensor"):
            fn = burnish.compile(
                lambda x, call=call: torch.cond(x.sum() > 0, call, lambda t: t * 2, (x,)), fullgraph=True
            )
            fn(MATRIX)


def draws(fn, *calls, backend, options=None):
    """Compare results, and the state of the generator after them."""
    burnish.reset()
    compiled = burnish.compile(fn, backend=backend, fullgraph=True, options=options)
    for _ in range(3):
        for call in calls:
            seen = []
            for function in (fn, compiled):
                torch.manual_seed(3)
                seen.append((function(call), torch.rand(3)))
            torch.testing.assert_close(seen[1], seen[0])


@with_all_backends
def test_a_branch_draws_eagers_random_numbers(backend):
    options = {"eager_random": True} if backend == "burnish" else None

    def fn(x):
        x = x + torch.rand(3)
        return torch.cond(x.sum() > 0, lambda t: t * torch.rand(3), lambda t: t + torch.randn(3), (x,)) * torch.rand(3)

    draws(fn, X + 3, X - 9, backend=backend, options=options)


@with_all_backends
def test_a_loop_draws_eagers_random_numbers(backend):
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

    options = {"eager_random": True} if backend == "burnish" else None

    def fn(x):
        carry, made = scan(lambda c, row: (c + row * torch.rand(3), c * 2), torch.zeros(3), x)
        _, carry = while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, c + torch.rand(3)), (torch.tensor(0), carry))
        return carry, made

    draws(fn, MATRIX, backend=backend, options=options)


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_the_gradient_of_dropout_in_a_branch_has_its_mask(backend):
    """Torch's own operator draws another mask in backward."""

    def fn(x):
        return torch.cond(x.sum() > 0, lambda t: nn.functional.dropout(t, 0.5), lambda t: t * 2, (x,)) * 1

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for _ in range(4):
        x = torch.ones(64, requires_grad=True)
        y = compiled(x)
        assert 0 < (y == 0).sum() < 64
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=backend != "burnish", retain_graph=True)
        assert torch.equal(gradient, y)


def test_the_gradient_of_the_gradient_of_a_random_branch_has_its_numbers():
    def fn(x):
        return torch.cond(x.sum() > 0, lambda t: t**3 * torch.rand(8), lambda t: t * 2, (x,)) * 1

    for backend in ("eager", "burnish"):
        burnish.reset()
        compiled = burnish.compile(fn, backend=backend, fullgraph=True, options=None)
        for _ in range(3):
            x = torch.ones(8, requires_grad=True)
            y = compiled(x)
            (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            torch.rand(5)
            torch.testing.assert_close(first, 3 * y)
            torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], 6 * y)
