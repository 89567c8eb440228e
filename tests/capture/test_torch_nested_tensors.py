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


def strided(*lengths):
    return torch.nested.nested_tensor([torch.ones(n, 3) for n in lengths])


class Scale(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.ones(3, 3) for _ in range(count))

    def forward(self, x):
        return [weight * x for weight in self.weights]


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("count", [1, 12, 200])  # which are compared in other ways
@pytest.mark.parametrize("calls", [1, 30])
def test_parameter_that_becomes_a_nested_tensor_is_noticed(count, calls):
    model = Scale(count)
    compiled = burnish.compile(model)
    with torch.no_grad():
        for _ in range(calls):
            compiled(2)
        plain = model.weights[0]
        model.weights[0] = torch.nn.Parameter(strided(2, 3))
        for _ in range(3):
            first, *others = compiled(2)
            assert first.is_nested and torch.equal(first.unbind()[1], torch.full((3, 3), 2.0))
            assert all(torch.equal(other, torch.full((3, 3), 2.0)) for other in others)
        model.weights[0] = plain
        assert torch.equal(compiled(2)[0], torch.full((3, 3), 2.0))


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("dynamic", [True, False, None])
def test_nested_tensor_in_place_of_one_of_any_size_is_noticed(dynamic):
    compiled = burnish.compile(lambda x: x * 2, dynamic=dynamic)
    for _ in range(2):
        for x in (torch.ones(3, 2), torch.ones(4, 2), torch.ones(5, 2)):
            assert torch.equal(compiled(x), x * 2)
        for x in (strided(2, 3), strided(2, 3), strided(4, 3)):
            assert [torch.equal(a, b * 2) for a, b in zip(compiled(x).unbind(), x.unbind(), strict=True)] == [True] * 2
