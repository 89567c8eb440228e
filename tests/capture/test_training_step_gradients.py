"""``.grad`` in whole training steps: cleared, kept, added to, read, clipped, shared, hooked."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import burnish
from burnish.backends.registry import Backend
from burnish.capture.pytorch.backward_and_grad import TAKES_TABLES

from .training_harness import rows, small_model, trained_alike

SGD = torch.optim.SGD


def world(step, make_model=small_model, **extra):
    """A world with a model and SGD; ``step(model, optimizer, x)`` is what is trained."""

    def build():
        model = make_model()
        optimizer = SGD(model.parameters(), lr=0.1, **extra)
        return (lambda x: step(model, optimizer, x)), (model, optimizer)

    return build


def loss_of(model, x):
    return model(x).square().mean()


def test_gradients_accumulate_unless_they_are_cleared():
    def step(model, optimizer, x):
        loss_of(model, x).backward()
        optimizer.step()

    seen = trained_alike(world(step), rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_several_small_batches_in_one_step():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        for part in x.chunk(5):
            (loss_of(model, part) / 5).backward()
        optimizer.step()

    seen = trained_alike(world(step), rows)
    assert (seen.breaks, seen.segments) == ([], 2)


@pytest.mark.parametrize("foreach", [None, True])
def test_gradients_set_to_zero_in_place(foreach):
    def step(model, optimizer, x):
        optimizer.zero_grad(set_to_none=False)
        loss_of(model, x).backward()
        optimizer.step()

    seen = trained_alike(world(step, foreach=foreach), rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_gradients_cleared_by_hand():
    def step(model, optimizer, x):
        for p in model.parameters():
            p.grad = None
        loss_of(model, x).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad.zero_()
        del model[0].weight.grad

    seen = trained_alike(world(step), rows)
    assert seen.breaks == []


def test_a_model_clears_its_gradients():
    def step(model, optimizer, x):
        model.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()

    assert trained_alike(world(step), rows).breaks == []


def test_gradients_read_and_returned():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        norms = [p.grad.norm() for p in model.parameters()]
        first = model[0].weight.grad
        optimizer.step()
        return loss, norms, first * 2, first is model[0].weight.grad, model[0].bias.grad.data.abs()

    assert trained_alike(world(step), rows).breaks == []


@pytest.mark.parametrize("foreach", [None, False])
def test_gradients_clipped(foreach):
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=foreach)
        nn.utils.clip_grad_value_(model.parameters(), 0.01, foreach=foreach)
        biggest = nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm_type="inf", foreach=foreach)
        optimizer.step()
        return norm, biggest

    assert trained_alike(world(step), rows).breaks == []


def test_gradients_replaced_and_scaled():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        for p in model.parameters():
            p.grad = p.grad.sign() * 0.5
        model[2].bias.grad = None
        model[0].bias.grad.mul_(2)
        optimizer.step()

    assert trained_alike(world(step), rows).breaks == []


def test_frozen_parameters_get_none():
    def make():
        model = small_model()
        for p in model[0].parameters():
            p.requires_grad_(False)
        return model

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()
        return [p.grad is None for p in model.parameters()]

    seen = trained_alike(world(step, make), rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_parameters_frozen_and_released_between_the_steps():
    def build(compiled):
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)

        def train(x):
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            return loss

        run = compiled(train)

        def step(x, i):
            for p in model[0].parameters():
                p.requires_grad_(i % 2 == 0)
            return run(x)

        return step, (model, optimizer)

    assert trained_alike(build, lambda i: (*rows(i), i)).breaks == []


@pytest.mark.falls_back("refused")
def test_parameters_frozen_by_the_step_itself():
    def build():
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)

        def train(x, i):
            for p in model[0].parameters():
                p.requires_grad_(i % 2 == 0)
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    trained_alike(build, lambda i: (*rows(i), i))


def test_parameters_that_take_no_part():
    def make():
        model = small_model()
        model.append(nn.Linear(2, 2))
        return model

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model[:4], x)
        loss.backward()
        optimizer.step()
        return model[4].weight.grad is None

    assert trained_alike(world(step, make), rows).breaks == []


def test_tied_weights_have_one_gradient():
    def make():
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        model[2].weight = model[0].weight
        return model

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()

    seen = trained_alike(world(step, make), rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_one_gradient_for_two_parameters_is_two_tensors():
    """The gradient of a sum is the same tensor for both: what is done to one in place must not be seen in the other."""

    def make():
        model = nn.Module()
        model.a, model.b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        return model

    def step(model, optimizer, x):
        optimizer.zero_grad()
        ((model.a + model.b) * x[0, :3]).sum().backward()
        model.a.grad.mul_(2)
        optimizer.step()

    assert trained_alike(world(step, make), rows).breaks == []


def test_a_gradient_that_is_given():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        out = model(x)
        given = torch.ones_like(out)
        out.backward(given)
        given.zero_()
        optimizer.step()

    def leaf(model, optimizer, x):
        optimizer.zero_grad()
        model.a.backward(x[0, :3])
        optimizer.step()
        return model.a.grad is x

    def make():
        model = nn.Module()
        model.a = nn.Parameter(torch.ones(3))
        return model

    assert trained_alike(world(step), rows).breaks == []
    assert trained_alike(world(leaf, make), rows).breaks == []


def test_gradients_have_the_strides_of_their_parameters():
    def make():
        model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).to(memory_format=torch.channels_last)
        model.register_parameter("scale", nn.Parameter(torch.randn(3, 2).t()))
        return model

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x.reshape(1, 2, 5, 2).repeat(1, 1, 1, 3)).square().mean()
        loss = loss + model.scale.sum() + model.scale[:1].expand(4, 3).sum()
        loss.backward()
        optimizer.step()
        return [p.grad.stride() for p in model.parameters()]

    assert trained_alike(world(step, make), rows).breaks == []


def test_inputs_that_require_gradients_get_them():
    def build():
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)

        def train(x):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
            return x.grad

        return train, (model, optimizer)

    assert trained_alike(build, lambda i: (torch.randn(5, 4, requires_grad=True),)).breaks == []


def test_two_losses_one_after_the_other():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        hidden = model[0](x)
        first, second = hidden.square().mean(), model[2](model[1](hidden)).abs().mean()
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()
        return first, second

    assert trained_alike(world(step), rows).breaks == []


def test_two_losses_at_once():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        first, second = model(x).square().mean(), model(x + 1).abs().mean()
        torch.autograd.backward([first, second], [torch.tensor(1.0), torch.tensor(0.5)])
        optimizer.step()
        return first + second

    assert trained_alike(world(step), rows).breaks == []


def test_backward_of_chosen_parameters():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss_of(model, x).backward(inputs=list(model[2].parameters()))
        optimizer.step()

    assert trained_alike(world(step), rows).breaks == []


def test_gradients_without_grad_attributes():
    def step(model, optimizer, x):
        loss = loss_of(model, x)
        parameters = list(model.parameters())
        found = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g in zip(parameters, found, strict=True):
                p.sub_(g, alpha=0.1)
        return loss, found

    seen = trained_alike(world(step), rows)
    assert (seen.breaks, seen.segments) == ([], 1)


def test_a_penalty_on_the_gradient():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = out.square().mean() + (slope.norm() - 1) ** 2
        loss.backward()
        optimizer.step()
        return loss

    seen = trained_alike(world(step), lambda i: (torch.randn(5, 4, requires_grad=True),))
    assert seen.breaks == []


def test_unused_inputs_of_grad():
    def step(model, optimizer, x):
        out = model[0](x).sum()
        used, unused = torch.autograd.grad(
            out, [model[0].weight, model[2].weight], allow_unused=True, retain_graph=True
        )
        zeros = torch.autograd.grad(out, [model[2].weight], materialize_grads=True, retain_graph=True)
        return used, unused, zeros

    def fails(model, optimizer, x):
        return torch.autograd.grad(model[0](x).sum(), [model[2].weight])

    assert trained_alike(world(step), rows).breaks == []
    trained_alike(world(fails), rows)


def test_inputs_of_grad_by_name():
    """Torch 2.11 refuses them, and so do we."""

    def step(model, optimizer, x):
        return torch.autograd.grad(model[0](x).sum(), {"w": model[0].weight})

    def all_at_once(model, optimizer, x):
        loss_of(model, x).backward(inputs=dict(model.named_parameters()))
        return model[0].weight.grad

    for program in (step, all_at_once):
        assert (trained_alike(world(program), rows).breaks == []) == TAKES_TABLES


def test_errors_of_backward_are_eagers():
    def twice(model, optimizer, x):
        loss = loss_of(model, x)
        loss.backward()
        loss.backward()

    def of_many(model, optimizer, x):
        model(x).backward()

    def of_none(model, optimizer, x):
        x.sum().backward()

    def given_twice(model, optimizer, x):
        y = model(x)
        y.backward(torch.ones_like(y), gradient=torch.ones_like(y))

    for step in (twice, of_many, of_none, given_twice):
        trained_alike(world(step), rows, steps=3)


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise ValueError("no gradient here")


def test_errors_of_ones_own_formulas_are_raised_once():
    def step(model, optimizer, x):
        try:
            Refuses.apply(model(x)).sum().backward()
        except ValueError as error:
            return str(error)
        return "no error"

    trained_alike(world(step), rows, steps=3)


# ---- what ends the segment


def hooked(register):
    def make():
        model = small_model()
        register(model)
        return model

    return make


@pytest.mark.parametrize(
    "register",
    [
        lambda m: m[0].weight.register_hook(lambda g: g * 2),
        lambda m: m[0].weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(3)),
        lambda m: m[0].register_full_backward_hook(lambda module, into, out: (into[0],)),
    ],
    ids=["on a tensor", "after accumulation", "on a module"],
)
def test_hooks_run_as_in_eager(register):
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()

    trained_alike(world(step, hooked(register)), rows)


def test_a_hook_put_on_a_parameter_between_the_steps_runs():
    def build(compiled):
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)

        def train(x):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()

        def step(x, i):
            if i == 3:
                handles.append(model[0].weight.register_hook(lambda g: g * 5))
            if i == 5:
                handles.pop().remove()
            return run(x)

        handles = []
        run = compiled(train)
        return step, (model, optimizer)

    trained_alike(build, lambda i: (*rows(i), i), steps=8)


def test_the_forward_ran_before_the_segment():
    def build(compiled):
        model = small_model()
        optimizer = SGD(model.parameters(), lr=0.1)

        def update(loss):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        run = compiled(update)

        def train(x):
            loss = loss_of(model, x)
            run(loss)
            return loss.detach()

        return train, (model, optimizer)

    assert "B206" in trained_alike(build, rows).breaks


def test_a_break_between_forward_and_backward():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        if loss > 0.5:
            loss = loss * 2
        loss.backward()
        optimizer.step()
        return loss

    assert "B206" in trained_alike(world(step), rows).breaks


def test_a_break_between_backward_and_step():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        if model[0].weight.grad.norm() > 0.01:
            optimizer.step()
        return loss

    assert trained_alike(world(step), rows).breaks != []


def test_a_leaf_made_inside():
    def step(model, optimizer, x):
        w = torch.ones(4, requires_grad=True)
        (x * w).sum().backward()
        return w.grad, w

    trained_alike(world(step), rows)


def test_sparse_gradients():
    def make():
        return nn.Sequential(nn.Embedding(6, 3, sparse=True))

    def step(model, optimizer, x):
        optimizer.zero_grad()
        model((x[:, 0].abs() * 2).long().clamp(max=5)).square().mean().backward()
        optimizer.step()

    trained_alike(world(step, make), rows)


def test_loss_of_a_regression_with_targets():
    def build():
        model = nn.Linear(4, 1)
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)

        def train(x, y):
            optimizer.zero_grad()
            loss = mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()

        return train, (model, optimizer)

    trained_alike(build, lambda i: (torch.randn(5, 4), torch.randn(5, 1)))


def test_gradients_that_are_dropped_leave_before_the_graph_runs():
    """As in eager, where zero_grad frees their memory: old and new gradients must not coexist."""
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    held = []

    def watching(graph, examples):
        def run(*inputs):
            held.append([p.grad is not None for p in model.parameters()])
            return graph(*inputs)

        return run

    def train(x):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()

    def adds_up(x):
        loss_of(model, x).backward()
        optimizer.step()

    for step, stay in ((train, False), (adds_up, True)):
        held.clear()
        compiled = burnish.compile(step, backend=Backend("watching", watching, runs_python=True))
        for i in range(4):
            compiled(*rows(i))
        assert held and held[-1] == [stay] * 6
        assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_gradients_are_no_views_of_what_autograd_computed(backend):
    """The formula of a product ends in a transposition: a view, unless it is distinguished as autograd does."""
    burnish.reset()
    model = nn.Linear(4, 3)
    optimizer = SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()

    compiled = burnish.compile(step, backend=backend)
    views = []
    for _ in range(6):  # the contest runs one of them eagerly
        compiled(torch.randn(5, 4))
        views += [p.grad._is_view() for p in model.parameters()]
    assert not any(views)
    assert len(compiled.__burnish_program__.entry.segments) == 2, "without gradients before, and with"


def test_parameters_frozen_between_forward_and_backward_get_no_gradient():
    """As Lightning's `toggle_optimizer` does."""

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        model[-1].requires_grad_(False)
        loss.backward()
        model[-1].requires_grad_(True)
        optimizer.step()

    seen = trained_alike(world(step), rows)
    assert seen.breaks == []
