"""Activation checkpointing in both modes: the forward runs again in backward, with its random numbers and its dtype."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .caller import program_with_caller
from .harness import program


def train(model):
    def caller(fn, x):
        model.zero_grad()
        out = fn(x)
        out.sum().backward()
        return out, x.grad, [p.grad for p in model.parameters()]
    return caller


def block():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))


def leaf():
    return torch.randn(2, 3, requires_grad=True)


@program_with_caller
def test_checkpoint_without_reentry():
    model = block()

    def fn(x):
        return checkpoint(model, x, use_reentrant=False).sin()
    return fn, train(model), lambda i: (leaf(),)


@program_with_caller
def test_checkpoint_with_reentry():
    model = block()

    def fn(x):
        return checkpoint(model, x, use_reentrant=True).sin()
    return fn, train(model), lambda i: (leaf(),)


@program_with_caller
def test_checkpoint_switched_by_a_flag_between_calls():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.save_memory = block(), False

        def forward(self, x):
            if self.save_memory and self.training:
                return checkpoint(self.body, x, use_reentrant=False)
            return self.body(x)
    model = Model()

    def caller(fn, x, save, training):
        model.save_memory = save
        model.train(training)
        return train(model)(fn, x)
    calls = [(False, True), (True, True), (True, False), (False, True), (True, True)]
    return model, caller, [(leaf(), *c) for c in calls]


@program_with_caller
def test_dropout_draws_the_same_mask_again():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    def fn(x):
        return checkpoint(model, x, use_reentrant=False)
    return fn, train(model), lambda i: (leaf(),)


@program_with_caller
def test_random_state_is_not_kept_when_asked():
    def noisy(x):
        return x * torch.rand(2, 3)

    def fn(x, keep):
        return checkpoint(noisy, x, use_reentrant=False, preserve_rng_state=keep)

    def caller(fn, x, keep):
        out = fn(x, keep)
        out.sum().backward()
        return out, x.grad
    return fn, caller, [(leaf(), k) for k in (True, False, True, False)]


@program_with_caller
def test_forward_is_counted_twice():
    count = []

    def counted(x):
        count.append(torch.is_grad_enabled())
        return x.sin().cos()

    def fn(x):
        return checkpoint(counted, x, use_reentrant=False)

    def caller(fn, x):
        out = fn(x)
        before = len(count)
        out.sum().backward()
        return out, before, list(count)
    return fn, caller, lambda i: (leaf(),)


@program_with_caller
def test_sequential_in_segments():
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])

    def fn(x):
        return checkpoint_sequential(model, 2, x, use_reentrant=False)
    return fn, train(model), lambda i: (leaf(),)


@program_with_caller
def test_keyword_arguments_and_several_results():
    def part(x, y, *, scale=1.0):
        return x * y * scale, (x + y).sin()

    def fn(x, y, scale):
        a, b = checkpoint(part, x, y, scale=scale, use_reentrant=False)
        return a + b

    def caller(fn, x, y, scale):
        fn(x, y, scale).sum().backward()
        return x.grad, y.grad
    return fn, caller, [(leaf(), leaf(), s) for s in (1.0, 2.0, 1.0)]


@program_with_caller
def test_nested_checkpoints():
    inner, outer = block(), block()
    model = nn.ModuleList([inner, outer])

    def deep(x):
        return outer(checkpoint(inner, x, use_reentrant=False)).tanh()

    def fn(x):
        return checkpoint(deep, x, use_reentrant=False)
    return fn, train(model), lambda i: (leaf(),)


@program_with_caller
def test_autocast_is_remembered_for_the_second_forward():
    model = block()

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return checkpoint(model, x, use_reentrant=False).float()
    return fn, train(model), lambda i: (leaf(),)


@program
def test_backward_inside():
    weight = torch.randn(3, requires_grad=True)

    def fn(x):
        loss = checkpoint(lambda v: (v * weight).sin(), x, use_reentrant=False).sum()
        loss.backward()
        grad = weight.grad
        weight.grad = None
        return loss, grad
    return fn, lambda i: (leaf(),), weight


@program
def test_without_gradients_it_is_a_plain_call():
    model = block()

    def fn(x):
        with torch.no_grad():
            return checkpoint(model, x, use_reentrant=False), checkpoint(model, x, use_reentrant=False).requires_grad
    return fn, lambda i: (leaf(),)
