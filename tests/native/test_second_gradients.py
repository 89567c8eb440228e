"""Gradients of gradients through compiled code from outside: random numbers are drawn again, statistics stay."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish


class Trunk(nn.Module):
    """Returns an intermediate result as well: several nodes of autograd."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        hidden = F.dropout(self.first(x).tanh(), 0.5, self.training)
        return self.second(hidden).sin(), hidden


MODELS = {
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 4)),
    "statistics": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4)),
    "both": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 4)),
    "an intermediate result": Trunk,
}


def gradients(run, model, x, is_twice):
    out = run(x)
    parts = out if isinstance(out, tuple) else (out,)
    loss = sum((part * part).sum() for part in parts)
    (first,) = torch.autograd.grad(loss, x, create_graph=is_twice)
    found = [*parts, first, torch.rand(1), *(buffer.clone() for buffer in model.buffers())]
    if is_twice:
        model.zero_grad()
        first.sin().sum().backward()
        found += [x.grad, *(p.grad for p in model.parameters())]
    return found


@pytest.mark.parametrize("draws_as_eager", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_gradients(name, draws_as_eager):
    torch.manual_seed(0)
    options = {"never_slower": False, "eager_random": draws_as_eager}
    model = MODELS[name]().double()
    plain, other = copy.deepcopy(model), copy.deepcopy(model)
    run, once = (burnish.compile(each, fullgraph=True, options=options) for each in (model, other))
    for call in range(4):
        x = torch.linspace(-1, 1 + call, 20, dtype=torch.float64).reshape(5, 4).requires_grad_()
        torch.manual_seed(call)
        found = gradients(run, model, x, True)
        x.grad = None
        torch.manual_seed(call)
        for a, b in zip(found, gradients(once, other, x, False), strict=False):
            torch.testing.assert_close(a, b)  # the second run has drawn what the first one had
        if draws_as_eager:
            torch.manual_seed(call)
            x.grad, wanted = None, gradients(plain, plain, x, True)
            for a, b in zip(found, wanted, strict=True):
                torch.testing.assert_close(a, b)
    assert burnish.was_compiled(run)


def test_second_gradient_through_an_overwritten_operand_is_an_error():
    buffer = torch.ones(3)

    def fn(x):
        out = (x + buffer) ** 3
        buffer.mul_(2)
        return out

    compiled = burnish.compile(fn, options={"never_slower": False})
    for call in range(2):
        x = torch.ones(3, requires_grad=True)
        out = compiled(x)
        if call:
            with pytest.raises(RuntimeError, match="writes to its inputs"):
                torch.autograd.grad(out.sum(), x, create_graph=True)


@pytest.mark.parametrize("is_twice", [False, True])
def test_input_that_another_input_was_computed_from(is_twice):
    """Both parts read x. The gradient of x in the second one does not include what flows through the first."""

    def fn(x, weight):
        hidden = x * weight.exp()
        burnish.graph_break()
        (gradient,) = torch.autograd.grad((hidden.sin() + x).sum(), x, create_graph=is_twice)
        return gradient

    x, weight = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    expected = weight.detach().exp() * (x * weight.exp()).detach().cos() + 1
    compiled = burnish.compile(fn, options={"never_slower": False})
    for _ in range(3):
        found = compiled(x, weight)
        torch.testing.assert_close(found.detach(), expected)
        assert found.requires_grad == is_twice
        if is_twice:
            (second,) = torch.autograd.grad(found.sum(), weight)
            factor = weight.detach().exp()
            inner = x.detach() * factor
            torch.testing.assert_close(second, factor * inner.cos() - factor * inner * inner.sin())


def test_many_gradients_of_an_input_that_another_input_was_computed_from():
    first, second = (burnish.compile(fn, options={"never_slower": False}) for fn in (torch.mul, torch.add))
    x, weight = torch.randn(3, requires_grad=True), torch.randn(3)
    for _ in range(3):
        out = second(first(x, weight), x)
        (found,) = torch.autograd.grad(out, x, torch.eye(3), is_grads_batched=True)
        torch.testing.assert_close(found, torch.diag(weight + 1))
