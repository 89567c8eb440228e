"""Custom autograd functions whose backward sees which outputs were used, in graphs for backends without Python."""

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

import burnish
from burnish.errors import Unsupported


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        if a is None:
            return b * 5
        return a * 7 if b is None else a + b


def plain(gm, example_inputs):
    return gm.forward


def ahead(gm, example_inputs):
    """Traces backward before it runs, as compilers do."""
    return aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward))(gm, example_inputs)


ONE_OUTPUT = {
    "first": lambda x: Two.apply(x)[0] * 2,
    "second": lambda x: Two.apply(x)[1] * 2,
    "both": lambda x: sum(Two.apply(x)),
    "other without gradients": lambda x: (lambda a, b: (a, b.detach()))(*Two.apply(x)),
}


def outcome(fn, x, which):
    made = fn(x.requires_grad_())
    made = made if isinstance(made, tuple) else (made,)
    return [t.detach() for t in made], torch.autograd.grad(made[which].sum(), x)


@pytest.mark.parametrize("case", ONE_OUTPUT)
@pytest.mark.parametrize("backend", [plain, ahead])
def test_function_that_sees_unused_outputs_is_in_a_graph_with_one_output(case, backend):
    fn = ONE_OUTPUT[case]
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        x = torch.randn(3)
        torch.testing.assert_close(outcome(compiled, x.clone(), 0), outcome(fn, x.clone(), 0))


TWO_OUTPUTS = {"its own": lambda x: Two.apply(x), "another": lambda x: (Two.apply(x)[0], x * 2)}


@pytest.mark.parametrize("case", TWO_OUTPUTS)
def test_with_two_outputs_that_have_gradients_it_is_plain_python(case):
    fn = TWO_OUTPUTS[case]
    compiled = burnish.compile(fn, backend=ahead)
    for which in (0, 1, 0, 1):
        x = torch.randn(3)
        torch.testing.assert_close(outcome(compiled, x.clone(), which), outcome(fn, x.clone(), which))
    with pytest.raises(Unsupported, match="sees which of its outputs were used"):
        burnish.compile(fn, backend=ahead, fullgraph=True)(torch.randn(3, requires_grad=True))


def test_with_a_written_argument_that_gets_gradients_it_is_plain_python():
    def fn(x, buffer):
        buffer.add_(Two.apply(x)[0])
        return buffer * 2

    compiled = burnish.compile(fn, backend=ahead)
    for _ in range(3):
        x = torch.randn(3)
        found = []
        for f in (fn, compiled):
            given, buffer = x.clone().requires_grad_(), torch.zeros(3)
            f(given, buffer)
            found.append(torch.autograd.grad(buffer.sum(), given))
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("backend", [plain, ahead])
def test_with_a_gradient_hook_on_an_unused_output_it_is_plain_python(backend):
    def fn(x):
        first, second = Two.apply(x)
        second.register_hook(lambda gradient: gradient * 2)
        return first * 2

    compiled = burnish.compile(fn, backend=backend)
    for f in (fn, compiled, compiled, compiled):
        with pytest.raises(TypeError, match="NoneType"):
            f(torch.randn(3, requires_grad=True)).sum().backward()
