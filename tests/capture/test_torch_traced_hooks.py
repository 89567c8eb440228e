"""Gradient hooks in graphs for backends that run no Python: torch's own operator, with the hook's body as a graph."""

import pytest
import torch

import burnish
from burnish.errors import Unsupported

pytest.importorskip("torch._higher_order_ops.register_hook")


def gradients(fn, *, one_graph=True, calls=3):
    """The gradients of several calls, and the graphs that the backend was given."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = burnish.compile(fn, backend=backend, fullgraph=one_graph)
    for i in range(calls):
        given = torch.randn(4, generator=torch.Generator().manual_seed(i))
        found = []
        for f in (fn, compiled):
            x = given.clone().requires_grad_()
            out = f(x)
            found.append((out.detach(), *torch.autograd.grad(out.sum(), x)))
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    return graphs


def hooks_in(graphs):
    return sum(getattr(node.target, "__name__", "") == "register_hook" for gm in graphs for node in gm.graph.nodes)


def test_hook_with_a_tensor_and_a_number_of_the_run_is_one_graph():
    def fn(x):
        scale, factor = x.detach() * 2, 3
        y = x.sin()
        y.register_hook(lambda g: g * scale + factor)
        return y * 3

    graphs = gradients(fn)
    assert (len(graphs), hooks_in(graphs)) == (1, 1)


def test_hook_sees_gradients_of_uses_before_it_was_registered():
    def fn(x):
        y = x.sin()
        before = y * 2
        y.register_hook(lambda g: g * g)
        y.register_hook(lambda g: g + 1)
        return before + y * 3

    graphs = gradients(fn)
    assert (len(graphs), hooks_in(graphs)) == (1, 2)


def test_hook_behind_a_batch_norm_is_part_of_the_graph():
    mean, var = torch.zeros(4), torch.ones(4)

    def fn(x):
        y = torch.nn.functional.batch_norm(torch.stack([x, x * 2]), mean.clone(), var.clone(), training=True)
        y.register_hook(lambda g: g.clamp(-0.1, 0.1) * 2)
        return y * x

    assert hooks_in(gradients(fn)) == 1


def test_hook_that_reads_a_variable_assigned_later_is_plain_python():
    def fn(x):
        factor = 2
        y = x.sin()
        y.register_hook(lambda g: g * factor)
        factor = 5
        return y * 3

    assert hooks_in(gradients(fn, one_graph=False)) == 0


def test_hooks_made_in_a_loop_read_its_last_value():
    def fn(x):
        y = x.sin()
        for factor in (2, 3):
            y.register_hook(lambda g: g * factor)  # noqa: B023
        return y * 3

    assert hooks_in(gradients(fn, one_graph=False)) == 0


def test_hook_on_a_tensor_that_is_changed_later_is_plain_python():
    def fn(x):
        y = x.sin()
        y.register_hook(lambda g: g * 2)
        y.mul_(3)
        return y * 3

    assert hooks_in(gradients(fn, one_graph=False)) == 0


def test_hook_that_reads_a_tensor_changed_later_is_plain_python():
    def fn(x):
        scale = x.detach() * 2
        y = x.sin()
        y.register_hook(lambda g: g * scale)
        scale.add_(1)
        return y * 3

    assert hooks_in(gradients(fn, one_graph=False)) == 0


FACTOR = 2


def test_hook_reads_a_global_number_in_backward():
    global FACTOR

    def fn(x):
        y = x.sin()
        y.register_hook(lambda g: g * FACTOR)
        return y * 3

    compiled = burnish.compile(fn, backend=lambda gm, example_inputs: gm.forward)
    for FACTOR in (2, 3, 4):
        x = torch.ones(4, requires_grad=True)
        out = compiled(x)
        FACTOR += 5
        out.sum().backward()
        torch.testing.assert_close(x.grad, torch.full((4,), 3.0) * FACTOR * torch.ones(4).cos(), rtol=0, atol=0)


@pytest.mark.parametrize("hook", [lambda g: None, lambda g: g.mul_(2), lambda g: g * 2 if g.sum() > 3 else g * 5])
def test_hook_that_is_no_function_of_the_gradient_is_plain_python(hook):
    def fn(x):
        y = x.sin()
        y.register_hook(hook)
        return y * 3

    assert hooks_in(gradients(fn, one_graph=False)) == 0


def test_hook_that_is_removed_or_handed_out_is_an_error_in_one_graph():
    def removes(x):
        y = x.sin()
        handle = y.register_hook(lambda g: g * 2)
        handle.remove()
        return y

    def hands_out(x):
        y = x.sin()
        return y, y.register_hook(lambda g: g * 2)

    for fn in (removes, hands_out):
        with pytest.raises(Unsupported):
            burnish.compile(fn, backend=lambda gm, example_inputs: gm.forward, fullgraph=True)(
                torch.ones(4, requires_grad=True)
            )


def test_aot_autograd_traces_the_hook_into_its_backward():
    def fn(x):
        scale = x.detach() * 2
        y = x.sin()
        y.register_hook(lambda g: g * scale)
        return y * 3

    compiled = burnish.compile(fn, backend="aot_eager", fullgraph=True)
    for i in range(3):
        x = (torch.ones(4) * i).requires_grad_()
        compiled(x).sum().backward()
        torch.testing.assert_close(x.grad, 6 * x.detach() * x.detach().cos())


def test_hook_on_a_tensor_from_outside_the_graph_is_registered_in_each_call():
    def fn(y):
        y.register_hook(lambda g: g * 2)
        return y

    compiled = burnish.compile(fn, backend="aot_eager")
    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        compiled(x * 3).sum().backward()
        assert x.grad.tolist() == [6.0, 6.0, 6.0]


FUNCTION = None


def test_hook_reads_what_its_names_and_tensors_hold_in_backward():
    def by_function(x, w):
        y = x * 2
        y.register_hook(lambda g: FUNCTION(g))
        return y, None

    def by_variable(x, w):
        factor = 2

        def assign(value):
            nonlocal factor
            factor = value

        y = x * 2
        y.register_hook(lambda g: g * factor)
        return y, assign

    def by_argument(x, w):
        y = x * 2
        y.register_hook(lambda g: g * w)
        return y, w.mul_

    def by_result(x, w):
        scale = w * 2
        y = x * 2
        y.register_hook(lambda g: g * scale)
        return y, scale[:2].mul_

    def replace(value):
        global FUNCTION
        FUNCTION = lambda g: g * value  # noqa: E731

    for fn in (by_function, by_variable, by_argument, by_result):
        compiled, gradients = burnish.compile(fn, backend="aot_eager"), []
        for value in (3, 4, 5):
            for f in (fn, compiled):
                replace(2)
                x = torch.ones(3, requires_grad=True)
                y, later = f(x, torch.full((3,), 2.0))
                (later or replace)(value)
                y.sum().backward()
                gradients.append(x.grad.tolist())
            assert gradients[-1] == gradients[-2], fn.__name__


def test_hook_that_is_plain_python_sees_gradients_of_uses_before_it_was_registered():
    seen = []

    def fn(x):
        y = x * 2
        z = y * 3
        y.register_hook(lambda g: (seen.append(1), g * 5)[1])
        return y + z

    compiled = burnish.compile(fn, backend="aot_eager")
    for _ in range(4):
        x = torch.ones(3, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad.tolist() == [40.0] * 3
    assert len(seen) == 4
