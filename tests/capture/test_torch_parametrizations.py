"""Parametrized weights: computed on each access, set through an inverse, added and removed between calls."""

import warnings

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import burnish

from ..recorded_events import recorded
from .caller_programs import program_with_caller
from .harness import program


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).mT

    def right_inverse(self, w):
        return w.triu()


class Scaled(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = nn.Parameter(torch.tensor(k))

    def forward(self, w):
        return w * self.k


@program
def test_symmetric_weight_is_computed_on_access():
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer, lambda i: (torch.randn(2, 3),)


@program
def test_two_parametrizations_are_applied_in_order():
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Scaled(3.0))
    parametrize.register_parametrization(layer, "weight", Symmetric())

    def fn(x):
        return layer(x), layer.weight, parametrize.is_parametrized(layer, "weight")

    return fn, lambda i: (torch.randn(1, 2),)


@program
def test_assignment_goes_through_the_inverse():
    layer = nn.Linear(2, 2, bias=False)
    parametrize.register_parametrization(layer, "weight", Symmetric())

    def fn(x, w):
        layer.weight = w
        return layer(x), layer.weight, layer.parametrizations.weight.original

    return fn, lambda i: (torch.randn(1, 2), torch.randn(2, 2))


@program_with_caller
def test_gradients_reach_the_original_weight():
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Scaled(2.0))

    def caller(fn, x):
        layer.zero_grad()
        fn(x).sum().backward()
        return {n: p.grad for n, p in layer.named_parameters()}

    return layer, caller, lambda i: (torch.randn(3, 2),)


@program_with_caller
def test_parametrization_is_put_on_and_removed_between_calls():
    layer = nn.Linear(2, 2)

    def caller(fn, x, change):
        if change == "on":
            parametrize.register_parametrization(layer, "weight", Scaled(2.0))
        elif change:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=change == "bake")
        return fn(x), type(layer).__name__

    return layer, caller, [(torch.randn(1, 2), c) for c in ("", "on", "", "restore", "on", "bake", "")]


@program
def test_cached_access_computes_once():
    calls = []

    class Loud(nn.Module):
        def forward(self, w):
            calls.append(len(calls))
            return w * 2

    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Loud())

    def fn(x):
        with parametrize.cached():
            a = layer(x) + layer(x)
        return a + layer(x), len(calls)

    return fn, lambda i: (torch.randn(1, 2),), calls


@program_with_caller
def test_weight_norm_trains_magnitude_and_direction():
    layer = parametrizations.weight_norm(nn.Linear(3, 2))

    def caller(fn, x):
        layer.zero_grad()
        out = fn(x)
        out.sum().backward()
        with torch.no_grad():
            for p in layer.parameters():
                p -= 0.1 * p.grad
        return out, layer.weight

    return layer, caller, lambda i: (torch.randn(2, 3),)


@program_with_caller
def test_spectral_norm_iterates_only_in_training():
    layer = parametrizations.spectral_norm(nn.Linear(3, 3))

    def caller(fn, x, training):
        layer.train(training)
        return fn(x), layer.parametrizations.weight[0]._u.clone()

    return layer, caller, [(torch.randn(1, 3), t) for t in (True, False, True, False, True)]


@program
def test_orthogonal_weight_stays_orthogonal():
    layer = parametrizations.orthogonal(nn.Linear(3, 3, bias=False))

    def fn(x):
        w = layer.weight
        return layer(x), torch.allclose(w @ w.T, torch.eye(3), atol=1e-5)

    return fn, lambda i: (torch.randn(2, 3),)


@program
def test_old_weight_norm_works_by_a_pre_hook():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        layer = nn.utils.weight_norm(nn.Linear(2, 2))

    def fn(x, k):
        with torch.no_grad():
            layer.weight_g.mul_(k)
        return layer(x), layer.weight

    return fn, [(torch.randn(1, 2), k) for k in (1.0, 2.0, 0.5)]


@program_with_caller
def test_pruning_masks_the_weight_between_calls():
    layer = nn.Linear(4, 2)

    def caller(fn, x, change):
        if change == "prune":
            prune.l1_unstructured(layer, "weight", amount=0.5)
        elif change == "remove":
            prune.remove(layer, "weight")
        return fn(x), (layer.weight == 0).sum()

    return layer, caller, [(torch.randn(1, 4), c) for c in ("", "prune", "", "remove", "")]


def cached_weight():
    """A layer whose weight is counted each time it is computed, and the list of counts."""
    computed = []

    class Counted(nn.Module):
        def forward(self, w):
            computed.append(1)
            return w * 2

    layer = nn.Linear(3, 3, bias=False)
    parametrize.register_parametrization(layer, "weight", Counted())
    computed.clear()
    return layer, computed


@program_with_caller
def test_a_weight_is_cached_in_blocks_entered_after_the_first_calls():
    layer, computed = cached_weight()

    def caller(fn, x, cached):
        if not cached:
            return fn(x), len(computed)
        with parametrize.cached():
            first = fn(x)
            with torch.no_grad():
                layer.parametrizations.weight.original.add_(1)
            with parametrize.cached():
                second = fn(x)
        return first, second, len(computed), len(parametrize._cache)

    return layer, caller, [(torch.ones(2, 3), cached) for cached in (False, False, True, True, False, True)]


def test_blocks_of_cached_weights_are_compiled_once_each():
    layer, computed = cached_weight()
    compiled, x = burnish.compile(layer, backend="eager"), torch.ones(2, 3)
    with recorded("traced") as seen:
        for _ in range(20):
            with parametrize.cached():
                assert torch.equal(compiled(x), compiled(x))
    assert len(computed) == 20 and not parametrize._cache and len(seen) == 2
