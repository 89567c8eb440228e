"""Gradients: backward and autograd.grad, inside and outside the function, once and again."""

import pytest
import torch
from torch import nn

import burnish

from .caller_programs import program_with_caller
from .harness import program


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@program_with_caller
def test_backward_outside_reaches_arguments_and_closure():
    weight = leaf(3)

    def fn(x):
        return (x * weight).sin().sum()

    def caller(fn, x):
        weight.grad = None
        out = fn(x)
        out.backward()
        return out, x.grad, weight.grad

    return fn, caller, lambda i: (leaf(3),)


@program_with_caller
def test_gradients_accumulate_over_calls():
    model = nn.Linear(2, 1)

    def caller(fn, x):
        fn(x).sum().backward()
        return model.weight.grad.clone(), model.bias.grad.clone()

    return model, caller, lambda i: (torch.randn(3, 2),)


@program
def test_backward_inside_fills_parameters():
    model = nn.Linear(2, 1)

    def fn(x):
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss.detach(), model.weight.grad * 2

    return fn, lambda i: (torch.randn(3, 2),), model


@program
def test_grad_is_reset_inside():
    model = nn.Linear(2, 1)

    def fn(x, to_none):
        model.zero_grad(set_to_none=to_none)
        before = model.weight.grad
        model(x).sum().backward()
        return before is None, model.weight.grad

    return fn, [(torch.randn(3, 2), t) for t in (True, False, True, False)], model


@program
def test_autograd_grad_inside():
    def fn(x, y):
        z = (x * y).sin().sum()
        gx, gy = torch.autograd.grad(z, (x, y))
        return gx * 2, gy, z

    return fn, lambda i: (leaf(3), leaf(3))


@program_with_caller
def test_autograd_grad_outside_with_output_gradients():
    def fn(x):
        return x**2, x**3

    def caller(fn, x):
        a, b = fn(x)
        return torch.autograd.grad((a, b), x, (torch.ones_like(a), torch.full_like(b, 2.0)))

    return fn, caller, lambda i: (leaf(3),)


@program
def test_second_order_gradient_inside():
    def fn(x):
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        penalty = first.pow(2).sum()
        (second,) = torch.autograd.grad(penalty, x)
        return first.detach(), second

    return fn, lambda i: (leaf(3),)


@program_with_caller
def test_gradient_penalty_with_backward_outside():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))

    def fn(x):
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (grad.norm(dim=1) - 1).pow(2).mean()

    def caller(fn, x):
        model.zero_grad()
        fn(x).backward()
        return [p.grad for p in model.parameters()]

    return fn, caller, lambda i: (leaf(4, 2),)


@program_with_caller
def test_second_backward_needs_a_retained_graph():
    def fn(x):
        return (x.exp() * x).sum()

    def caller(fn, x, retain):
        loss = fn(x)
        loss.backward(retain_graph=retain)
        try:
            loss.backward()
        except RuntimeError as error:
            return "second time" in str(error), x.grad
        return x.grad

    return fn, caller, [(leaf(3), r) for r in (True, False, True, False)]


@program
def test_two_backwards_inside_with_retained_graph():
    def fn(x):
        y = x.exp()
        y.sum().backward(retain_graph=True)
        once = x.grad.clone()
        (y * y).sum().backward()
        return once, x.grad

    return fn, lambda i: (leaf(3),)


@program_with_caller
def test_detach_cuts_one_path():
    def fn(x):
        y = x * 2
        return y * y.detach() + y.detach().exp()

    def caller(fn, x):
        fn(x).sum().backward()
        return x.grad

    return fn, caller, lambda i: (leaf(3),)


@program_with_caller
def test_requires_grad_of_arguments_varies():
    def fn(x, y):
        return x * 2 + y.sin()

    def caller(fn, x, y):
        out = fn(x, y)
        if out.requires_grad:
            out.sum().backward()
        return out.requires_grad, out.is_leaf, x.grad, y.grad

    grads = ((True, False), (False, False), (True, True), (False, True), (True, False))
    return fn, caller, [(torch.randn(2, requires_grad=a), torch.randn(2, requires_grad=b)) for a, b in grads]


@program
def test_flag_requires_grad_is_read_by_the_program():
    def fn(x):
        if x.requires_grad:
            return x * 2
        return x.clone().requires_grad_() * 3

    return fn, [(torch.randn(2, requires_grad=g),) for g in (True, False, True, False)]


@program_with_caller
def test_only_one_of_two_outputs_is_used():
    def fn(x, y):
        return (x * y).sum(), (x + y).prod()

    def caller(fn, x, y, which):
        fn(x, y)[which].backward()
        return x.grad, y.grad

    return fn, caller, [(leaf(2), leaf(2), w) for w in (0, 1, 0)]


@program_with_caller
def test_unused_argument_gets_no_gradient():
    def fn(x, y):
        y * 2
        return x.sum()

    def caller(fn, x, y):
        fn(x, y).backward()
        return x.grad, y.grad

    return fn, caller, lambda i: (leaf(2), leaf(2))


@program
def test_grad_of_unused_input():
    def fn(x, y, allow):
        try:
            return torch.autograd.grad(x.sum(), (x, y), allow_unused=allow)
        except RuntimeError as error:
            return str(error).split(".")[0]

    return fn, [(leaf(2), leaf(2), a) for a in (True, False, True, False)]


@program
def test_backward_without_history_raises():
    def fn(x):
        try:
            x.sum().backward()
        except RuntimeError as error:
            return str(error)
        return x.grad

    return fn, [(torch.randn(2, requires_grad=g),) for g in (True, False, True, False)]


@program
def test_backward_of_a_vector_needs_a_gradient():
    def fn(x, g):
        y = x * 3
        try:
            y.backward(g)
        except RuntimeError as error:
            return str(error)
        return x.grad

    return fn, [(leaf(2), g) for g in (torch.ones(2), None, torch.randn(2), None)]


@program
def test_gradient_descent_loop_inside():
    def fn(x, steps):
        w = torch.zeros(2, requires_grad=True)
        for _ in range(steps):
            loss = (w - x).pow(2).sum()
            (grad,) = torch.autograd.grad(loss, w)
            w = (w - 0.25 * grad).detach().requires_grad_()
        return w, loss

    return fn, [(torch.randn(2), n) for n in (2, 4, 2)]


@program
def test_gradient_clipping_inside():
    model = nn.Linear(2, 2)

    def fn(x, limit):
        model.zero_grad()
        model(x).pow(2).sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
        nn.utils.clip_grad_value_(model.parameters(), limit / 2)
        return norm, [p.grad for p in model.parameters()]

    return fn, [(torch.randn(3, 2), limit) for limit in (1.0, 100.0, 1.0)]


@program_with_caller
def test_gradient_through_indexing_and_views():
    def fn(x):
        y = x.view(2, 3).t()
        return y[1:, 0] * y[:2, 1], y[torch.tensor([0, 0, 2])].sum()

    def caller(fn, x):
        a, b = fn(x)
        (a.sum() + b).backward()
        return x.grad

    return fn, caller, lambda i: (leaf(6),)


@program_with_caller
def test_graph_spans_two_compiled_calls():
    def fn(x, w):
        return (x * w).tanh()

    def caller(fn, x, w):
        fn(fn(x, w), w).sum().backward()
        return x.grad, w.grad

    return fn, caller, lambda i: (leaf(3), leaf(3))


@program_with_caller
def test_non_leaf_argument_carries_history_in():
    def fn(y):
        return y * y, y.requires_grad, y.is_leaf

    def caller(fn, x):
        out, *flags = fn(x * 3)
        out.sum().backward()
        return flags, x.grad

    return fn, caller, lambda i: (leaf(3),)


@program_with_caller
def test_output_is_a_leaf_or_not():
    def fn(x):
        return x, x.detach(), x * 1, torch.ones(1), x.view(-1)

    def caller(fn, x):
        outs = fn(x)
        return [(o.is_leaf, o.requires_grad, type(o.grad_fn).__name__) for o in outs]

    return fn, caller, [(torch.randn(2, requires_grad=g),) for g in (True, False, True, False)]


@program
def test_break_between_forward_and_backward_inside():
    model = nn.Linear(2, 1)

    def fn(x):
        model.zero_grad()
        loss = model(x).pow(2).mean()
        value = loss.item()
        if value > 1:
            loss = loss / value
        loss.backward()
        return value, model.weight.grad

    return fn, [(torch.randn(3, 2) * k,) for k in (0.1, 5.0, 0.1, 7.0)]


@program
def test_gradient_is_assigned_by_hand():
    w = torch.ones(2, requires_grad=True)

    def fn(x):
        w.grad = x * 2 if w.grad is None else w.grad + x
        with torch.no_grad():
            w.sub_(w.grad, alpha=0.1)
        return w * 1

    return fn, lambda i: (torch.randn(2),), w


@program(breaks=0)
def test_the_node_of_a_result_has_eagers_name():
    def fn(x):
        y = x.sin()
        node = y.grad_fn
        return y * (2 if node is not None and "Sin" in node.name() else 3)

    return fn, [(torch.ones(3, requires_grad=flag),) for flag in (True, False, True, False)]


@program
def test_a_hook_of_a_node_gets_eagers_gradients():
    """The compiled graph has other nodes, so this place runs as plain Python."""
    seen = []

    def fn(x, y):
        out = x * y
        out.grad_fn.register_hook(lambda inputs, outputs: seen.append((len(inputs), len(outputs))))
        out.exp().sum().backward()
        return x.grad * 1

    return fn, lambda i: (torch.ones(3, requires_grad=True), torch.ones(3)), seen


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_gradients_of_unused_tensors_are_leaves_with_create_graph(backend):
    def fn(x, y):
        used, unused = torch.autograd.grad(
            (x**3).sum(), (x, y), create_graph=True, allow_unused=True, materialize_grads=True
        )
        return used, unused, unused * 2

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
        found, expected = compiled(x, y), fn(x, y)
        assert [g.requires_grad for g in found] == [g.requires_grad for g in expected]
        assert [g.is_leaf for g in found] == [g.is_leaf for g in expected] == [False, True, False]
        torch.testing.assert_close(found, expected)
