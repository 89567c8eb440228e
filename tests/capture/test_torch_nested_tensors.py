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


@pytest.mark.falls_back("refused", only="burnish")
@BACKENDS
def test_jagged_tensors_are_made_inside(backend):
    def fn(values, offsets, first, second):
        made = torch.nested.nested_tensor_from_jagged(values, offsets)
        other = torch.nested.nested_tensor_from_jagged(values.cos(), offsets)
        parts = torch.nested.as_nested_tensor([first, second], layout=torch.jagged)
        listed = torch.nested.nested_tensor([first, second], layout=torch.jagged)
        return (made.sin() + other).values(), parts * 2, listed

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for size in (5, 5, 6, 7):
        values = torch.arange(4.0 * size).view(size, 4).requires_grad_()
        given = values, torch.tensor([0, 2, size]), torch.ones(2, 4), torch.ones(size, 4)
        found, expected = compiled(*given), fn(*given)
        torch.testing.assert_close(found[0], expected[0])
        for one, other in zip(found[1:], expected[1:], strict=True):
            torch.testing.assert_close(one.values(), other.values())
            torch.testing.assert_close(one.offsets(), other.offsets())
            assert not one.requires_grad
        gradients = [torch.autograd.grad(out[0].sum(), values)[0] for out in (found, expected)]
        torch.testing.assert_close(*gradients)


def test_a_jagged_tensor_made_inside_is_in_one_graph_of_a_custom_backend():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def fn(first, second):
        return torch.nested.nested_tensor([first, second], layout=torch.jagged).sin()

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        first, second = torch.rand(2, 4), torch.rand(3, 4)
        torch.testing.assert_close(compiled(first, second).values(), torch.cat([first, second]).sin())
        assert len(graphs) == 1
