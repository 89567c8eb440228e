"""Selective checkpoints: a policy chooses what is saved, in the graph as in eager."""

import functools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import burnish

from .operator_backend import operators

MM, SIN = torch.ops.aten.mm.default, torch.ops.aten.sin.default
BACKENDS = pytest.mark.parametrize(
    "backend", ["burnish", "eager", "aot_eager", pytest.param(operators, id="operators")]
)


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func)
        return func(*args, **kwargs or {})


def saves_products(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is MM else CheckpointPolicy.PREFER_RECOMPUTE


def contexts_of_a_list():
    return create_selective_checkpoint_contexts([MM])


CONTEXTS = {
    "policy": functools.partial(create_selective_checkpoint_contexts, saves_products),
    "flags": functools.partial(create_selective_checkpoint_contexts, lambda ctx, op, *args, **kwargs: op is MM),
    "list": contexts_of_a_list,
}


def block(x, w):
    return (x.sin() @ w).sin().cos() @ w


@BACKENDS
@pytest.mark.parametrize("kind", CONTEXTS)
def test_values_and_gradients_are_those_of_eager(kind, backend):
    def fn(x, w):
        return checkpoint(block, x, w, use_reentrant=False, context_fn=CONTEXTS[kind]) * 2

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        found = [(y := f(x, w), torch.autograd.grad(y.square().sum(), (x, w))) for f in (fn, compiled)]
        torch.testing.assert_close(*found)
    assert burnish.was_compiled(compiled)


@pytest.mark.parametrize("saves", [True, False])
def test_saved_results_are_not_computed_again(saves):
    context = CONTEXTS["policy"] if saves else None
    options = {"context_fn": context} if saves else {}
    fn = lambda x, w: checkpoint(block, x, w, use_reentrant=False, **options) * 2  # noqa: E731
    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    for k in range(3):
        y = compiled(x, w).sum()
        with Count() as count:
            y.backward()
        if k > 0:  # the traced run computes all again
            assert count.calls.count(MM) == (4 if saves else 6)  # four of them are gradients
            assert count.calls.count(SIN) >= 2


@pytest.mark.parametrize("is_object", [False, True])
def test_a_policy_with_state_is_left_to_torch(is_object):
    counts = {"mm": 0}

    def policy(ctx, op, *args, **kwargs):
        if op is MM:
            counts["mm"] += 1
        return op is MM and counts["mm"] % 2 == 1

    class Policy:
        def __call__(self, *args, **kwargs):
            return policy(*args, **kwargs)

    given = Policy() if is_object else policy

    def fn(x, w):
        context = functools.partial(create_selective_checkpoint_contexts, given)
        return checkpoint(block, x * 1, w, use_reentrant=False, context_fn=context) * 2

    compiled = burnish.compile(fn)
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    for k in range(1, 4):
        y = compiled(x, w)
        assert counts["mm"] == 2 * k
        torch.testing.assert_close(y, block(x, w) * 2)
    assert {reason.source.kind.code for reason in burnish.explain(fn)(x, w).break_reasons} == {"B203"}


def test_other_contexts_are_left_to_torch():
    entered = []

    class Noted:
        def __enter__(self):
            entered.append(1)

        def __exit__(self, *error):
            return None

    def fn(x, w):
        return checkpoint(block, x * 1, w, use_reentrant=False, context_fn=lambda: (Noted(), Noted())) * 2

    compiled = burnish.compile(fn)
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    for k in range(1, 4):
        torch.testing.assert_close(compiled(x, w), block(x, w) * 2)
        assert len(entered) == k


def test_random_numbers_are_the_same_again():
    def noisy(x):
        return torch.nn.functional.dropout(x.sin(), 0.5).cos()

    context = functools.partial(create_selective_checkpoint_contexts, [SIN])

    def fn(x):
        return checkpoint(noisy, x, use_reentrant=False, context_fn=context)

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    x = torch.randn(64, requires_grad=True)
    for seed in range(3):
        found = []
        for function in (fn, compiled):
            torch.manual_seed(seed)
            y = function(x)
            found.append((y, torch.autograd.grad(y.sum(), x)))
        torch.testing.assert_close(*found)
