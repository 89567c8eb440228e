"""``switch`` of a tensor is part of the graph, as branches of ``torch.cond`` in each other."""

import pytest
import torch

import burnish

from .harness import program
from .operator_backend import operators

switch = pytest.importorskip("torch._higher_order_ops.switch").switch


@pytest.fixture(autouse=True)
def forget_what_dynamo_compiled():
    """Eager's switch calls Dynamo, which compiles a function of torch's eight times at most."""
    torch.compiler.reset()


INDICES = (0, 1, 2, 1, -3, 9)
"""Torch takes the first or the last branch for those out of range."""


@pytest.mark.parametrize("backend", ["burnish", "aot_eager", operators])
def test_switch_chooses_one_of_several_layers_with_gradients(backend):
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)])

    def fn(x, index):
        twice = x * 2
        return switch(index, [*layers[:2], lambda t: layers[2](t) + twice], (x,)).sum()

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for index in INDICES:
        x = torch.randn(2, 3)
        outcomes = []
        for f in (fn, compiled):
            layers.zero_grad()
            given = x.clone().requires_grad_()
            value = f(given, torch.tensor(index))
            value.backward()
            gradients = [torch.zeros(()) if p.grad is None else p.grad.abs().sum() for p in layers.parameters()]
            outcomes.append((value.detach(), given.grad, gradients))
        torch.testing.assert_close(outcomes[1], outcomes[0])


@program(breaks=0)
def test_switch_of_structures_and_of_a_switch():
    def fn(x, index):
        inner = lambda d: switch(index + 1, [lambda t: {"out": t.sin()}, lambda t: {"out": t + 1}], (d["x"],))  # noqa: E731
        return switch(index[None], (inner, lambda d: {"out": d["x"].cos()}), ({"x": x},))["out"], switch(
            index, [torch.sin], (x,)
        )

    return fn, [(torch.randn(3), torch.tensor(k)) for k in INDICES]


@program(breaks=0)
def test_switch_of_a_python_number_chooses_while_tracing():
    return (lambda x, k: switch(k, [torch.sin, torch.cos], (x,))), [(torch.randn(3), k) for k in (0, 1, 0, 5)]


@program
def test_what_torch_refuses_it_refuses():
    faults = {
        "no branches": [],
        "no functions": [1, 2],
        "an argument returned": [lambda t: t, torch.cos],
        "a change": [lambda t: t.add_(1), torch.cos],
    }

    def fn(x, index, fault):
        return switch(index, faults[fault], (x,))

    return fn, [(torch.randn(3), torch.tensor(0), fault) for fault in faults for _ in range(2)]
