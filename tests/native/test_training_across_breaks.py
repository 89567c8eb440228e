"""Training across graph breaks: leaves created between segments, and gradients through all segments."""

import pytest
import torch
from torch import nn

import burnish
from burnish.settings import patch

from ..recorded_events import recorded
from .compare_training import alike

MADE = {
    "a parameter": lambda x: nn.Parameter(x.sigmoid()),
    "a parameter of an argument": lambda x: nn.Parameter(x),
    "a parameter without gradients": lambda x: nn.Parameter(x * 2, requires_grad=False),
    "what is computed of a parameter": lambda x: nn.Parameter(x.sigmoid()) * x,
    "a buffer": lambda x: nn.Buffer(x + 1),
    "a factory's leaf": lambda x: torch.ones(3, requires_grad=True) * x,
    "a method's leaf": lambda x: x.new_zeros(3, requires_grad=True) + x,
    "a leaf of numbers": lambda x: torch.tensor([1.0, 2.0, 3.0], requires_grad=True) - x,
}


def facts(x):
    return type(x), x.requires_grad, x.is_leaf, getattr(x, "_is_buffer", False)


@pytest.mark.parametrize("name", MADE)
def test_leaves_that_are_made_in_a_function_are_leaves(name):
    fn = MADE[name]
    with patch(never_slower=False):
        compiled = burnish.compile(fn, fullgraph=True)
        for _ in range(3):
            x = torch.randn(2, 3)
            made, expected = compiled(x), fn(x)
            assert facts(made) == facts(expected)
            torch.testing.assert_close(made, expected)


def test_a_parameter_shows_writes_to_its_source():
    def fn(x):
        y = x.sigmoid()
        made = nn.Parameter(y)
        with torch.no_grad():
            before = made * 3
            y.mul_(2.0)
            after = made + before
            made.add_(1)
            return after, y * 1, made

    with patch(never_slower=False):
        compiled = burnish.compile(fn)
        for _ in range(3):
            x = torch.randn(2, 3)
            torch.testing.assert_close(compiled(x), fn(x))


def test_random_leaves_repeat_under_a_seed():
    compiled = burnish.compile(lambda: torch.randn(5, requires_grad=True) * 1)
    drawn = []
    for _ in range(3):
        torch.manual_seed(3)
        drawn.append(compiled())
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[1], drawn[2])


def step_with_a_condition(layer, last):
    def build(compiler):
        model = nn.ModuleList([layer, last])
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def step(x):
            optimizer.zero_grad()
            y = layer(x)
            y = torch.cond(y.sum() > 0, lambda a: a * 2, lambda a: a.sin(), (y,))
            loss = last(y).pow(2).sum()
            loss.backward()
            optimizer.step()
            return loss

        return compiler(step), (model,)

    return build


def test_gradients_go_back_through_a_condition_in_a_training_step():
    def build(compiler):
        return step_with_a_condition(nn.Linear(3, 3), nn.Linear(3, 2))(compiler)

    seen = alike(build, lambda i: (torch.randn(5, 3),), steps=6)
    assert seen.refused == []


def test_gradients_of_a_layer_before_and_after_a_condition_add_up():
    def build(compiler):
        layer = nn.Linear(3, 3)
        return step_with_a_condition(layer, layer)(compiler)

    seen = alike(build, lambda i: (torch.randn(5, 3),), steps=6)
    assert seen.refused == []


WITH_STEPS = {
    "a parameter": lambda x: nn.Parameter(x.sigmoid()) * x.sum(0),
    "a transform": lambda x: torch.func.vmap(lambda row: (row * row).sum())(x.exp()) + x.sum(1),
    "a condition": lambda x: torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a + 1, (x * 2,)) + x.exp(),
}


@pytest.mark.parametrize("name", WITH_STEPS)
@pytest.mark.parametrize("trains", (False, True))
def test_segments_of_symbolic_sizes_are_right_at_each_size(name, trains):
    fn = WITH_STEPS[name]
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(fn)
        for n in (3, 5, 6, 3, 6, 7, 5):
            x = torch.randn(n, 4, requires_grad=trains)
            same = x.detach().clone().requires_grad_(trains)
            out, expected = compiled(x), fn(same)
            torch.testing.assert_close(out, expected)
            if trains:
                out.sum().backward()
                expected.sum().backward()
                torch.testing.assert_close(x.grad, same.grad)


def loss(x):
    return (torch.sin(x) * x.sum()).sum()


TRANSFORMED = {
    "grad": torch.func.grad(loss),
    "vmap": torch.func.vmap(loss),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,)),
    "vjp": lambda x: torch.func.vjp(torch.sin, x)[1](x),
    "jacobian": lambda x: torch.func.jacrev(torch.sin)(x[0]).softmax(0),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_of_functions_run_in_their_graph(name):
    with recorded("graph.failed", datum="text") as failed, patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(TRANSFORMED[name])
        for _ in range(3):
            x = torch.randn(3, 4)
            torch.testing.assert_close(compiled(x), TRANSFORMED[name](x))
    assert failed == []


@torch.library.custom_op("burnish_tests::sine_into", mutates_args={"result"})
def sine_into(x: torch.Tensor, result: torch.Tensor) -> None:
    result.copy_(x.sin())


@torch.library.custom_op("burnish_tests::bump_all", mutates_args={"parts"})
def bump_all(parts: list[torch.Tensor]) -> None:
    for k, part in enumerate(parts):
        part.add_(k + 1)


def filled(x):
    made = torch.empty_like(x)
    sine_into(x * 2, made)
    sine_into(made, made)
    return made + 1, made


def written_parts(x):
    y = x.exp()
    bump_all([y[0], y[1]])
    return y.sum(0), y


def written_argument(x):
    sine_into(x.clone(), x[1:] if x.shape[0] > 9 else x)
    return x.softmax(-1)


@pytest.mark.parametrize("fn", (filled, written_parts, written_argument))
def test_operators_that_write_are_steps_and_the_rest_is_compiled(fn):
    with (
        recorded("lower.refused") as refused,
        recorded("loops") as planned,
        patch(never_slower=False, on_error="raise"),
    ):
        compiled = burnish.compile(fn, fullgraph=True)
        for n in (3, 3, 4, 5, 3):
            x = torch.randn(n, 4)
            same = x.clone()
            torch.testing.assert_close(compiled(x), fn(same))
            torch.testing.assert_close(x, same)
    assert not refused and planned
