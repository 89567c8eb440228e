"""Tensor object state in captured functions: hooks, retained gradients and ``.data``, in order and in one graph."""

import functools

import pytest
import torch
from torch import nn

import burnish

from ..recorded_events import recorded
from .both_backends import backends, in_one_graph
from .caller_programs import program_with_caller

X = torch.tensor([0.5, -1.5, 2.0])


def leaf(i):
    return (torch.full((3,), i + 1.0, requires_grad=True),)


def plainly(fn, x):
    return fn(x)


def going_back(fn, x):
    out = fn(x)
    (out[0] if isinstance(out, tuple) else out).sum().backward()
    return out, x.grad


@in_one_graph
def test_a_hook_on_an_intermediate_changes_its_gradient():
    def fn(x):
        y = x.sin() * 2
        y.register_hook(lambda grad: grad * 10)
        return y.exp() + y

    return fn, going_back, leaf


@in_one_graph
def test_a_hook_on_an_argument_changes_its_gradient():
    def fn(x):
        x.register_hook(lambda grad: grad * 10)
        return x.exp() + x

    return fn, going_back, leaf


@in_one_graph
def test_a_hook_sees_the_gradient_of_earlier_uses_too():
    def fn(x):
        y, z = (x * 2).split([1, 2])
        used = y.exp() * z
        y.register_hook(lambda grad: grad * 10)
        z.retain_grad()
        return (used + y).sum(), z

    def caller(fn, x):
        out, z = fn(x)
        out.backward()
        return out, x.grad, z.grad

    return fn, caller, leaf


@program_with_caller
def test_a_hook_on_a_written_tensor():
    def fn(x):
        y = x * 2
        z = y.exp()
        z.mul_(3)
        z.register_hook(lambda grad: grad * 10)
        return y + z

    return fn, going_back, leaf


@pytest.mark.falls_back("refused")
@in_one_graph
def test_a_hook_on_a_tensor_that_is_written_later():
    def fn(x):
        y = x * 2
        y.register_hook(lambda grad: grad + 10)
        y.mul_(3)
        return y.sin() + y

    return fn, going_back, leaf


@in_one_graph
def test_a_hook_on_an_argument_that_the_caller_computed():
    def fn(y):
        used = y.exp()
        y.register_hook(lambda grad: grad + 10)
        return used + y

    def caller(fn, x):
        y = x * 3
        out = fn(y)
        (out + y).sum().backward()
        return out, x.grad

    return fn, caller, leaf


@in_one_graph
def test_a_hook_closes_over_values_of_the_run():
    seen = []

    def fn(x):
        factor = x.detach().sum()
        kept = {"by": factor}
        y = x * 3

        def hook(grad):
            seen.append(grad.clone())
            return grad * kept["by"]

        y.register_hook(hook)
        kept["by"] = factor + 1
        return y.cos()

    return fn, going_back, leaf, seen


@in_one_graph
def test_hooks_run_in_their_order():
    log = []

    def note(name, grad):
        log.append((name, grad.sum().item()))
        return grad + 1

    def fn(x):
        y = x.tanh()
        y.register_hook(functools.partial(note, "first"))
        x.register_hook(functools.partial(note, "argument"))
        y.register_hook(functools.partial(note, "second"))
        return y * y

    return fn, going_back, leaf, log


@in_one_graph
def test_a_hook_that_is_a_method_of_an_object_outside():
    class Watch:
        def __init__(self):
            self.seen = []

        def __call__(self, grad):
            self.seen.append(grad.norm())

        def method(self, grad):
            self.seen.append(grad.sum())

    watch = Watch()

    def fn(x):
        y = x * x
        y.register_hook(watch)
        y.register_hook(watch.method)
        return y.sum() + x.sum()

    return fn, going_back, leaf, watch.seen


@in_one_graph
def test_a_hook_on_a_parameter_stays():
    model = nn.Linear(3, 2)
    nn.init.constant_(model.weight, 0.5)
    nn.init.constant_(model.bias, 0.5)

    def fn(x):
        model.weight.register_hook(lambda grad: grad * 2)
        return model(x)

    def caller(fn, x):
        model.zero_grad()
        out = fn(x)
        out.sum().backward()
        return out, x.grad, model.weight.grad, len(model.weight._backward_hooks)

    return fn, caller, leaf


@in_one_graph
def test_a_hook_after_the_gradient_is_accumulated():
    log = []

    def fn(x):
        x.register_post_accumulate_grad_hook(lambda tensor: log.append(tensor.grad.clone()))
        return x * 3

    return fn, going_back, leaf, log


@in_one_graph
def test_handles_are_returned_and_remove_their_hooks():
    def fn(x):
        y = x * 2
        return y * 3, x.register_hook(lambda grad: grad * 5), y.register_hook(lambda grad: grad * 7)

    def caller(fn, x, removes):
        out, *handles = fn(x)
        for at in removes:
            handles[at].remove()
        out.sum().backward()
        return out, x.grad

    return fn, caller, lambda i: (*leaf(i), [(), (0,), (1,), (0, 1)][i % 4])


@program_with_caller
def test_a_hook_that_is_removed_in_the_function_itself():
    def fn(x):
        y = x * 2
        handle, other = y.register_hook(lambda grad: grad * 5), x.register_hook(lambda grad: grad * 7)
        handle.remove()
        with other:
            return y.sin()

    return fn, going_back, leaf


@program_with_caller
def test_a_hook_before_a_backward_pass_in_the_function_itself():
    log = []

    def fn(x):
        y = x.exp()
        y.register_hook(lambda grad: log.append(grad.sum().item()))
        x.register_hook(lambda grad: grad * 2)
        y.sum().backward()
        return y.detach() + x.grad

    return fn, lambda fn, x: (fn(x), x.grad), leaf, log


@program_with_caller
def test_a_hook_on_a_tensor_without_gradient_is_an_error():
    def fn(x, grad):
        y = x * 2
        try:
            y.register_hook(lambda grad: grad)
        except RuntimeError as error:
            return str(error)
        return y

    return fn, lambda fn, x, grad: fn(x.requires_grad_(grad), grad), lambda i: (torch.ones(2), i % 2 == 0)


@in_one_graph
def test_gradients_of_intermediates_are_retained():
    def fn(x):
        y = x.sin()
        y.retain_grad()
        return (y * y).sum(), y

    def caller(fn, x):
        out, y = fn(x)
        out.backward()
        return out, y, y.grad, x.grad

    return fn, caller, leaf


@in_one_graph
def test_data_is_replaced():
    weight = torch.ones(3, requires_grad=True)

    def fn(x):
        before = weight * 2
        weight.data = x.detach() + 1
        return before + weight * x

    def caller(fn, x):
        weight.grad = None
        out = fn(x)
        out.sum().backward()
        return out, x.grad, weight, weight.grad, weight.is_leaf

    return fn, caller, leaf


@in_one_graph
def test_data_is_that_of_another_tensor_from_then_on():
    def fn(p, q):
        p.data = q
        q.add_(1)
        return p * 2

    return fn, lambda fn, p, q: (fn(p, q), p, q), lambda i: (torch.ones(3) * i, torch.ones(3) + i)


@program_with_caller
def test_data_of_another_shape():
    def fn(p, q):
        p.data = q
        return p * 2

    return fn, lambda fn, p, q: (fn(p, q), p), lambda i: (torch.ones(3), torch.ones(2 + i))


@program_with_caller(breaks=0)
def test_data_is_written_to():
    def fn(p, q):
        p.data.copy_(q)
        p.data.mul_(0.5).add_(q.data, alpha=2)
        p.data[0] = 7
        return (p * q).sum()

    def caller(fn, p, q):
        out = fn(p, q)
        out.backward()
        return out, p, p.grad

    return fn, caller, lambda i: (torch.ones(3, requires_grad=True), torch.ones(3) + i)


def test_backends_that_run_no_python_take_hooks_on_leaves():
    def fn(x):
        x.register_hook(lambda grad: grad * 3)
        return x * 2

    compiled = burnish.compile(fn, backend=lambda gm, inputs: gm.forward, fullgraph=True)
    for _ in range(3):
        x = X.clone().requires_grad_()
        compiled(x).sum().backward()
        assert x.grad.tolist() == [6.0] * 3


def test_backends_that_run_no_python_break_at_hooks_with_effects():
    seen = []

    def hook(grad):
        seen.append(grad)
        return grad * 3

    def fn(x):
        y = x * 2
        y.register_hook(hook)
        return y + 1

    with pytest.raises(burnish.Unsupported, match="B401"):
        burnish.compile(fn, backend=lambda gm, inputs: gm.forward, fullgraph=True)(X.clone().requires_grad_())
    compiled = burnish.compile(fn, backend=lambda gm, inputs: gm.forward)
    for _ in range(3):
        x = X.clone().requires_grad_()
        compiled(x).sum().backward()
        assert x.grad.tolist() == [6.0] * 3 and len(seen) == 1
        seen.clear()


@in_one_graph
def test_what_the_graph_makes_is_seen_another_way():
    def fn(x):
        y = x * 2
        rows = y.view(2, 3)
        y.unsqueeze_(0)
        rows.t_().add_(1)
        y.mul_(2)
        return y, rows, y.shape, (y.transpose_(0, 1) + 1).squeeze_()

    return fn, plainly, lambda i: (torch.full((6,), i - 1.5),)


@in_one_graph
def test_what_the_graph_makes_is_seen_another_way_at_all_sizes():
    def fn(x):
        y = x * 2
        rows = y.view(-1, 1)
        y.unsqueeze_(0)
        rows.t_().add_(1)
        column = torch.linspace(0, 1, x.shape[0]).unsqueeze_(-1)
        return y, y.shape[1] * 3, rows, y + column, y.swapaxes_(0, 1).expand(-1, 2).reshape(-1)

    return fn, plainly, lambda i: (torch.full((i + 3,), i - 1.5),)


@pytest.mark.parametrize("sizes", [(3, 3), (3, 4, 5, 6)])
def test_a_saved_tensor_that_is_seen_another_way_is_an_error(sizes):
    def fn(x):
        y = x.sigmoid()
        y.unsqueeze_(0)
        return y.sum()

    compiled = burnish.compile(fn, backend="eager")
    for size in sizes:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            compiled(torch.ones(size, requires_grad=True)).backward()


@in_one_graph
def test_what_the_graph_makes_leaves_the_autograd_graph():
    weight = torch.tensor([0.5, 1.5, -1.0], requires_grad=True)

    def fn(x):
        state, loss = torch.zeros(3), torch.zeros(())
        for _ in range(3):
            state = torch.tanh(state * weight + x)
            loss = loss + state.sum()
            state.detach_()
        return state, state.requires_grad, loss

    return fn, plainly, lambda i: (X * i,), weight


@program_with_caller
def test_an_argument_is_seen_another_way():
    def fn(x):
        x.unsqueeze_(0)
        return x + 1, x.shape

    return fn, plainly, lambda i: (torch.full((3,), i + 1.0),)


def compiled_wholly(make):
    """As ``in_one_graph``, and our own compiler takes the whole of it."""

    @functools.wraps(make)
    def test():
        with recorded("lower.refused") as refused:
            backends(make)
        assert not refused

    del test.__wrapped__  # what pytest looks for arguments in
    return test


@compiled_wholly
def test_a_parameter_is_masked_through_its_data():
    model, mask = nn.Linear(3, 3), torch.tensor([[1.0, 0.0, 1.0]])

    def fn(x):
        model.weight.data *= mask
        for parameter in model.parameters():
            parameter.data.clamp_(-0.4, 0.4)
        return model(x)

    torch.manual_seed(0)
    nn.init.uniform_(model.weight)
    nn.init.uniform_(model.bias)
    return fn, plainly, lambda i: (X * (i + 1),), model


@compiled_wholly
def test_gradients_are_made_of_what_was_written_through_data():
    weight = torch.full((3,), 0.5, requires_grad=True)

    def fn(x):
        hidden = torch.tanh(x * weight)
        loss = (hidden * weight).sum()
        hidden.data.mul_(2)
        loss.backward()
        found, weight.grad = weight.grad, None
        return loss.detach(), found, hidden.detach()

    return fn, plainly, lambda i: (X * (i + 1),), weight


@pytest.mark.falls_back("refused")
@in_one_graph
def test_data_that_leaves_counts_its_own_writes():
    weight = torch.full((3,), 0.5, requires_grad=True)

    def fn(x):
        hidden = torch.tanh(x * weight)
        return hidden.data, (hidden * weight).sum()

    def caller(fn, x):
        data, loss = fn(x)
        data.mul_(2)
        return data, torch.autograd.grad(loss, weight)[0]

    return fn, caller, lambda i: (X * (i + 1),)


@in_one_graph
def test_setting_requires_grad_to_what_it_is():
    frozen = torch.ones(3)

    def fn(x):
        made = torch.eye(3, out=torch.empty(3, 3))
        made.requires_grad = frozen.requires_grad = False
        x.requires_grad = True
        return (made + frozen) @ x

    return fn, going_back, leaf


@program_with_caller
def test_requires_grad_of_a_result_is_refused_as_in_eager():
    def fn(x):
        y = x * 2
        y.requires_grad = True
        return y

    def caller(fn, x):
        try:
            return fn(x)
        except RuntimeError as error:
            return str(error)

    return fn, caller, leaf
