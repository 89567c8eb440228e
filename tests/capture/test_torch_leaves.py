"""Whether tensors require gradients, changed inside captured functions: forces, penalties, adversaries, frozen nets."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish

from ..recorded_events import recorded
from .both_backends import in_one_graph
from .caller_programs import program_with_caller
from .harness import program


def network(outputs=4):
    torch.manual_seed(outputs)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


def rows(i):
    return (torch.linspace(-1, 1 + i / 4, 12).reshape(3, 4),)


def plainly(fn, *args):
    return fn(*args)


def taught(model):
    """A caller that trains by the loss which the function returns."""

    def caller(fn, *args):
        model.zero_grad()
        out = fn(*args)
        loss = out[0] if isinstance(out, tuple) else out
        loss.sum().backward()
        return out, args, [p.grad for p in model.parameters()]

    return caller


def state_of(model):
    return [*model.parameters(), [p.grad for p in model.parameters()], [p.requires_grad for p in model.parameters()]]


@in_one_graph
def test_a_physics_informed_network_differentiates_twice():
    model = network(1)

    def fn(t):
        t = t.requires_grad_(True)
        u = model(t)
        (first,) = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)
        (second,) = torch.autograd.grad(first, t, torch.ones_like(first), create_graph=True)
        return (second[:, 0] + first[:, 1] - u[:, 0]).square().mean()

    return fn, taught(model), rows


@in_one_graph
def test_forces_are_trained():
    model = network(1)

    def fn(positions):
        positions = positions.detach().requires_grad_()
        distances = (positions[:, None] - positions[None]).square().sum(-1, keepdim=True).add(0.1).sqrt()
        energy = model(distances * positions[None]).sum()
        (gradient,) = torch.autograd.grad([energy], [positions], create_graph=True, retain_graph=True)
        return energy.square() + gradient.square().sum(), -gradient

    return fn, taught(model), rows


@in_one_graph
def test_energy_of_a_frozen_network_requires_gradients():
    model = network(1).requires_grad_(False)

    def fn(positions):
        positions = positions.detach().requires_grad_()
        energy = model(positions).square().sum()
        (gradient,) = torch.autograd.grad(energy, positions)
        return energy, gradient

    return fn, plainly, rows


@in_one_graph
def test_the_callers_tensor_gets_gradients():
    model = network(1).requires_grad_(False)

    def fn(positions):
        positions.requires_grad_()
        energy = model(positions).square().sum()
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
        return energy, gradient

    def caller(fn, positions):
        energy, gradient = fn(positions)
        (energy + gradient.sum()).backward()
        return energy, gradient, positions

    return fn, caller, rows


@in_one_graph
def test_a_gradient_penalty_in_a_training_step():
    model = network(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def fn(x):
        x = x.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = (gradient.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), x.grad

    return fn, plainly, rows, state_of(model)


@in_one_graph
def test_adversarial_networks_take_turns():
    maker, judge = network(), network(1)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (maker, judge)]

    def require(model, flag):
        for parameter in model.parameters():
            parameter.requires_grad = flag

    def fn(noise):
        require(judge, True)
        optimizers[1].zero_grad()
        loss = F.softplus(judge(maker(noise).detach())).mean() + F.softplus(-judge(noise)).mean()
        loss.backward()
        optimizers[1].step()
        require(judge, False)
        optimizers[0].zero_grad()
        other = F.softplus(-judge(maker(noise))).mean()
        other.backward()
        optimizers[0].step()
        return loss.detach(), other.detach()

    return fn, plainly, rows, state_of(maker), state_of(judge)


@in_one_graph
def test_a_perturbation_climbs_the_loss():
    model = network()

    def fn(x):
        delta = torch.zeros_like(x)
        for _ in range(3):
            delta.requires_grad_(True)
            loss = model(x + delta).square().mean()
            (gradient,) = torch.autograd.grad(loss, delta)
            delta = (delta.detach() + 0.1 * gradient.sign()).clamp(-0.2, 0.2)
        return x + delta

    return fn, plainly, rows


@in_one_graph
def test_guidance_under_no_grad():
    model, classifier = network(), network()

    @torch.no_grad()
    def fn(x):
        for _ in range(2):
            with torch.enable_grad():
                inner = x.detach().requires_grad_(True)
                score = F.log_softmax(classifier(inner), -1)[:, 0].sum()
                (gradient,) = torch.autograd.grad(score, inner)
            x = x - 0.1 * model(x) + gradient
        return x

    return fn, plainly, rows


@in_one_graph
def test_a_leaf_with_its_gradient_is_returned():
    def fn(x):
        y = (x * 2).detach().requires_grad_()
        y.sin().sum().backward()
        return y, y.grad * 2

    def caller(fn, x):
        y, doubled = fn(x)
        return y, doubled, y.grad

    return fn, caller, rows


@in_one_graph
def test_uses_before_have_no_history():
    def fn(x):
        before = x * 2
        x.requires_grad_()
        return before, x * 3

    def caller(fn, x):
        before, after = fn(x)
        after.sum().backward()
        return before, after, x

    return fn, caller, rows


@in_one_graph
def test_a_view_of_a_leaf_made_inside():
    def fn(x):
        return (x * 2).detach().requires_grad_().view(-1)

    def caller(fn, x):
        out = fn(x)
        out.sum().backward()
        return out

    return fn, caller, rows


@in_one_graph
def test_parameters_are_frozen_for_a_part_only():
    model = network()

    def fn(x):
        for parameter in model[0].parameters():
            parameter.requires_grad_(False)
        y = model(x)
        for parameter in model[0].parameters():
            parameter.requires_grad_(True)
        return y + model(x).sin()

    return fn, taught(model), rows, [p.requires_grad for p in model.parameters()]


@program_with_caller
def test_a_tensor_that_is_no_leaf_raises():
    def fn(x):
        y = x * 2
        y.requires_grad_(False)
        return y

    return fn, plainly, lambda i: (torch.ones(3, requires_grad=True),)


@program
def test_an_error_later_leaves_the_flag_set():
    def fn(x, at):
        x.requires_grad_()
        return (x * 2)[at]

    return fn, [(torch.ones(3), torch.tensor([i])) for i in (0, 1, 7, 2)]


def test_an_error_in_compiled_code_leaves_the_flag_set():
    """The graph that fails runs again as plain Python, from the state before: it asks for the flag first."""
    seen = []

    def fn(x, at):
        seen.append(x.requires_grad)
        x.requires_grad_()
        return (x * 2)[at]

    compiled = burnish.compile(fn, options={"never_slower": False})
    for at in (0, 1, 7):
        x = torch.ones(3)
        try:
            compiled(x, torch.tensor([at]))
        except IndexError:
            assert at == 7
        assert x.requires_grad and x.is_leaf
    assert seen == [False, False, False]


def test_second_derivatives_are_compiled_for_all_sizes():
    model = network(1)

    def fn(x):
        x = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
        return second.square().mean()

    with recorded("traced") as traced:
        compiled = burnish.compile(fn, fullgraph=True)
        for size in (3, 5, 6, 9):
            x = torch.randn(size, 4)
            torch.testing.assert_close(compiled(x), fn(x))
    assert len(traced) == 2


LEAVES = {
    "factory": lambda x: torch.ones(3, requires_grad=True),
    "parameter": lambda x: nn.Parameter(x * 2),
    "switched on": lambda x: (x * 2).detach().requires_grad_(),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "burnish"])
@pytest.mark.parametrize("make", LEAVES.values(), ids=LEAVES)
def test_a_leaf_made_inside_gets_its_gradient(make, backend):
    def fn(x, weight):
        leaf = make(x)
        return (x * weight * leaf).sum(), leaf

    def gradients(function, i):
        weight = torch.full((3,), 0.5 + i, requires_grad=True)
        loss, leaf = function(torch.arange(3.0) + i, weight)
        loss.backward()
        return leaf.grad, weight.grad

    compiled = burnish.compile(fn, backend=backend)
    for i in range(4):
        for found, expected in zip(gradients(compiled, i), gradients(fn, i), strict=True):
            torch.testing.assert_close(found, expected)


def run_by_others(gm, example_inputs):
    return gm.forward


@pytest.mark.parametrize("backend", ["eager", "aot_eager", run_by_others], ids=["eager", "aot_eager", "custom"])
def test_views_of_parameters_made_without_gradients_stay_in_the_graph(backend):
    def step(weight, x):
        with torch.no_grad():
            weight[0].mul_(2)
            weight.view(-1)[3:].add_(x.sum())
            row = weight.t()
        return (row * weight * x).sum(), row

    compiled = burnish.compile(step, backend=backend, fullgraph=True)
    ours, plain = (nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    for i in range(4):
        x = torch.arange(16.0).reshape(4, 4) - i
        for function, weight in ((compiled, ours), (step, plain)):
            loss, row = function(weight, x)
            assert row.is_leaf and row.requires_grad
            (loss + row.sum()).backward()
        torch.testing.assert_close((ours, ours.grad), (plain, plain.grad))


def base_written(weight):
    with torch.no_grad():
        row = weight[1]
        weight.mul_(2)
    return row, weight * 3


def view_written(weight):
    with torch.no_grad():
        row = weight.view(-1)[2:]
        row.mul_(2)
    return row, weight * 3


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("fn", [base_written, view_written])
@pytest.mark.parametrize("backend", ["aot_eager", run_by_others], ids=["aot_eager", "custom"])
def test_a_view_of_a_parameter_leaves_other_compilers_as_in_eager(fn, backend):
    compiled = burnish.compile(fn, backend=backend)
    ours, plain = (nn.Parameter(torch.ones(3, 4)) for _ in range(2))
    for _ in range(4):
        (found, after), (expected, _) = compiled(ours), fn(plain)
        assert torch.equal(found.detach(), expected.detach()) and torch.equal(ours.detach(), plain.detach())
        assert found.requires_grad == expected.requires_grad
        assert torch.equal(after.detach(), ours.detach() * 3)


def test_a_view_of_a_parameter_in_inference_mode():
    def fn(weight):
        row = weight[0]
        return row, weight.t(), row.is_leaf

    weight = nn.Parameter(torch.ones(3, 4))
    compiled = burnish.compile(fn, backend="aot_eager")
    with torch.inference_mode():
        for _ in range(4):
            for found, expected in zip(compiled(weight), fn(weight), strict=True):
                assert found is expected or torch.equal(found, expected)
                assert found is expected or (found.is_leaf, found._is_view()) == (expected.is_leaf, expected._is_view())


def test_a_deep_copy_of_a_module_is_one_break_for_other_backends():
    model, graphs = nn.Linear(4, 4), []

    def fn(x):
        copied = copy.deepcopy(model)
        return copied(x + 1), copied

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = burnish.compile(fn, backend=backend)
    for i in range(4):
        x = torch.ones(2, 4) + i
        out, copied = compiled(x)
        out.sum().backward()
        torch.testing.assert_close(out, model(x + 1))
        assert copied.weight.grad is not None and model.weight.grad is None
    assert len(graphs) == 1
