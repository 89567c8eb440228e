"""Nested tensors with a jagged layout reach each backend."""

import pytest
import torch

import burnish

from .operator_backend import operators

BACKENDS = pytest.mark.parametrize(
    "backend", ["burnish", "eager", "aot_eager", pytest.param(operators, id="operators")]
)


def nested(*lengths, learns=False):
    parts = [torch.randn(n, 4) for n in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=learns)


@pytest.mark.falls_back("refused", only="burnish")
@BACKENDS
def test_jagged_tensors_are_computed_by_each_backend(backend):
    def fn(x):
        return (x.sin() * 2).values(), x + x

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for x in (nested(3, 2), nested(3, 2), nested(5, 1)):
        values, doubled = compiled(x)
        torch.testing.assert_close(values, (x.sin() * 2).values())
        torch.testing.assert_close(doubled.values(), (x + x).values())
        assert doubled.shape == x.shape
    assert burnish.was_compiled(compiled)


@pytest.mark.falls_back("refused", only="burnish")
@BACKENDS
def test_gradients_flow_through_jagged_tensors(backend):
    def fn(x):
        return (x.sin() * x).values().sum()

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    x = nested(3, 2, learns=True)
    for _ in range(3):
        (found,) = torch.autograd.grad(compiled(x), x)
        (expected,) = torch.autograd.grad(fn(x), x)
        torch.testing.assert_close(found.values(), expected.values())
