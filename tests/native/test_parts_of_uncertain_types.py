"""What follows a call that stands alone is compiled for the types that the call's results have."""

import pytest
import torch
from torch import nn
from torch.autograd import Function

import burnish
from burnish.compiler import partition_uncompiled_calls
from burnish.settings import patch

from .test_custom_autograd_functions import Positive


class Doubled(Function):
    """Decides by a number that it reads."""

    @staticmethod
    def forward(ctx, x):
        return torch.zeros(6) if x[0].item() > 1 else x * 2

    @staticmethod
    def backward(ctx, g):
        return g


class Lazy(Function):
    """Its result is negated lazily for some data."""

    @staticmethod
    def forward(ctx, x):
        return torch._neg_view(x * 2) if bool(x[0] > 1) else x * 2

    @staticmethod
    def backward(ctx, g):
        return g


class Shared(Function):
    """Its result shares memory with its argument for some data."""

    @staticmethod
    def forward(ctx, x):
        return x.view(-1) if bool(x[0] > 1) else x.clone()

    @staticmethod
    def backward(ctx, g):
        return g


def shared(x):
    y = x * 1
    made = Shared.apply(y)
    y.add_(1)
    return y * 1, made * 1


def in_a_branch(x):
    return torch.cond(x.sum() > -100, lambda v: v.cos() + 1, lambda v: v + 1, (Positive.apply(x.sin()),))


def behind_a_parameter(x):
    return nn.Parameter(Positive.apply(x.sin())).cos() * nn.Parameter(x.sum())


@pytest.mark.parametrize("order", [(0, 0, 0, 2, 3, 0, 2), (2, 2, 2, 0, 3, 2, 0)])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: Doubled.apply(x * 1),
        lambda x: (Lazy.apply(x * 1) + 1) * 2,
        shared,
        lambda x: in_a_branch(x - 1.3),
        lambda x: behind_a_parameter(x - 1.3),
    ],
    ids=["a number is read", "negated lazily", "shared memory", "sizes in a branch", "sizes behind a parameter"],
)
@pytest.mark.falls_back("refused", "sizes")
def test_what_depends_on_data_is_another_thing_later(fn, order):
    with patch(never_slower=False):
        run = burnish.compile(fn)
        for start in order:
            x = torch.linspace(0.1, 2, 6) + start
            torch.testing.assert_close(run(x), fn(x))


class Strict(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        SEEN.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


SEEN: list[str] = []


@pytest.mark.falls_back("refused")
def test_tensors_of_other_classes_are_asked_nothing_between_parts():
    def fn(x, s):
        made, t, other = nn.Parameter(x * 2), s * 2, nn.Parameter(x * 3)
        return t * 3 + 1, made * other

    x, s = torch.rand(6), torch.ones(6).as_subclass(Strict)
    with patch(never_slower=False):
        run = burnish.compile(fn)
        for _ in range(5):
            SEEN.clear()
            run(x, s)
        assert SEEN == ["mul", "mul", "add"]


def test_known_types_are_not_compared_between_parts(monkeypatch):
    """The parts between calls that stand alone, and each size of a graph for several, are compiled."""

    def fn(x):
        y = torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v + 1, (x,))
        return nn.Parameter(y.sin() + 1) * 3

    compared = []
    monkeypatch.setattr(partition_uncompiled_calls, "type_of", compared.append)
    with patch(never_slower=False):
        run = burnish.compile(fn)
        for k in range(9):
            x = torch.ones(6 + k % 3)
            torch.testing.assert_close(run(x), fn(x))
    assert compared == []
