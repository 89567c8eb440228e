"""Code around compiled code in training behaves as around eager code: detached tensors, batch norms that run twice,
hooks, anomaly mode, penalties on gradients, functional calls, averages of weights."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vjp, vmap
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

import burnish
from burnish.settings import patch

from .compare_training import alike


def rows(i):
    return (torch.randn(5, 8),)


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


# ---- what leaves a graph


def test_a_detached_parameter_takes_no_gradients():
    weight = nn.Parameter(torch.randn(4, 4))

    def build(compiler):
        run = compiler(lambda: (weight.detach(), weight.detach()[1:].t(), weight * 2))

        def step(with_gradients):
            with torch.set_grad_enabled(with_gradients):
                plain, part, scaled = run()
            return plain, part, scaled.requires_grad, plain is weight, plain.data_ptr() == weight.data_ptr()

        return step, ()

    alike(build, lambda i: (i % 2 == 0,))


def test_detached_tensors_alone_take_no_gradients():
    weight = nn.Parameter(torch.randn(4))

    def build(compiler):
        run = compiler(lambda: {"weight": weight.detach()})
        return run, ()

    alike(build, lambda i: ())


def test_a_view_beside_a_parameter_may_be_written_to_in_grad_mode():
    def build(compiler):
        weight = torch.randn(4, requires_grad=True)
        run = compiler(lambda x, v: (x[1:], weight.detach() * 2, v, weight.detach()[2:]))

        def step(x):
            v = x.view(2, 2)
            part, _, same, shown = run(x, v)
            shown.mul_(1)
            part.mul_(weight[1:])
            part.sum().backward()
            return x.detach(), weight.grad, same is v

        return step, ()

    alike(build, lambda i: (torch.randn(4),))


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.BatchNorm1d(8)),
        # Without a bias, whose gradient before a batch norm is zero: that would be rounding beside rounding.
        lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 2, bias=False), nn.BatchNorm1d(3)),
    ],
    ids=["linear", "convolution"],
)
def test_batch_norms_that_run_twice_before_backward_go_backward(make):
    """Real and generated samples in one loss: running statistics are written in between, without an error."""

    def build(compiler):
        model = make()
        run = compiler(model)

        def step(x):
            model.zero_grad()
            (run(x).sin().sum() + run(-x * 2).sin().sum() * 2).backward()

        return step, (model,)

    alike(build, rows)


def test_a_batch_norm_evaluates_and_trains_before_backward():
    def build(compiler):
        model = nn.BatchNorm1d(8)
        run = compiler(model)

        def step(x):
            model.zero_grad()
            model.eval()
            first = run(x)
            model.train()
            (first.sum() * 0 + run(x * 2).sin().sum()).backward()
            return {name: copy.deepcopy(value) for name, value in model.named_buffers()}

        return step, ()

    alike(build, rows)


# ---- how backward is called


def test_graphs_are_retained_and_freed_as_in_eager():
    def build(compiler):
        model = mlp()
        run = compiler(lambda x: model(x).square().mean())

        def step(x):
            model.zero_grad()
            loss = run(x)
            loss.backward(retain_graph=True)
            loss.backward()
            try:
                loss.backward()
            except RuntimeError as error:
                return str(error)

        return step, (model,)

    assert alike(build, rows).refused == []


def test_steps_of_other_sizes_run_backward_as_well():
    """The size 5 reaches a program for all sizes that is not right for it: its replacement is differentiable too."""

    def build():
        w, v = (torch.nn.Parameter(torch.ones(6, k) / 6) for k in (1, 6))

        def step(x):
            y = x @ v
            (x @ w).sum().backward()
            y.sum().backward()
            return y.detach()

        return step, (w, v)

    (plain, wanted), (step, found) = build(), build()
    with patch(never_slower=False, on_error="raise"):
        run = burnish.compile(step)
        for rows in (4, 6, 5, 3, 5, 5, 8):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(run(x), plain(x))
            torch.testing.assert_close([p.grad for p in found], [p.grad for p in wanted])


def forward_mode(run, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(run(forward_ad.make_dual(x.detach(), torch.ones_like(x)))).tangent


AROUND = {
    "forward mode": forward_mode,
    "batched": lambda run, x: torch.autograd.grad(run(x), x, torch.eye(2), is_grads_batched=True)[0],
    "jacobian": lambda run, x: torch.autograd.functional.jacobian(run, x, vectorize=True),
    "vmap of backward": lambda run, x: vmap(lambda t, y=run(x): torch.autograd.grad(y, x, t, retain_graph=True)[0])(
        torch.eye(2)
    ),
    "grad": lambda run, x: grad(lambda t: run(t).sum())(x),
    "vjp": lambda run, x: vjp(run, x)[1](torch.ones(2))[0],
    "jvp": lambda run, x: jvp(run, (x,), (x * 2,))[1],
    "vmap": lambda run, x: vmap(run)(x),
}


@pytest.mark.parametrize("name", AROUND)
def test_code_around_a_compiled_function_sees_its_derivatives(name):
    def fn(x):
        return (x.sin() * x).sum(-1)

    x = torch.randn(2, 3, requires_grad=True)
    around = AROUND[name]
    with patch(never_slower=False, on_error="raise"):
        run = burnish.compile(fn)
        for _ in range(3):
            torch.testing.assert_close(around(run, x), around(fn, x))
            for plain in (x, x.detach()):
                torch.testing.assert_close(run(plain), fn(plain))


def test_hooks_see_and_change_gradients():
    def build(compiler):
        model, log = mlp(), []
        model[0].weight.register_hook(lambda g: g * 2)
        model[2].weight.register_post_accumulate_grad_hook(lambda p: log.append(float(p.grad.sum())))

        def loss_of(x):
            hidden = model[0](x)
            hidden.register_hook(lambda g: g * 3)
            return model[2](hidden.tanh()).square().mean()

        run = compiler(loss_of)

        def step(x):
            model.zero_grad()
            run(x).backward()
            return list(log)

        return step, (model,)

    alike(build, rows)


def test_anomaly_detection_names_the_function_of_the_program():
    def build(compiler):
        model = nn.Linear(8, 8)
        run = compiler(lambda x: torch.sqrt(model(x) * 0 - 1).sum())

        def step(x, is_on):
            model.zero_grad()
            with torch.autograd.set_detect_anomaly(is_on):
                run(x).backward()

        return step, ()

    with pytest.warns(UserWarning, match="SqrtBackward0"):
        seen = alike(build, lambda i: (*rows(i), i in (0, 4)), steps=7)
    assert seen.refused == [] and seen.planned == 2  # compiled for calls without anomaly mode


def test_a_penalty_on_gradients_from_outside():
    def build(compiler):
        model = mlp()
        run = compiler(lambda x: model(x).square().mean())

        def step(x):
            model.zero_grad()
            x.requires_grad_()
            loss = run(x)
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + slope.square().sum()).backward()
            return x.grad

        return step, (model,)

    alike(build, rows, tolerance=1e-3)


def test_learning_to_learn_is_one_graph():
    """Parameters after a step of their own, in a functional call, and backward through both."""

    def build(compiler):
        model = mlp()

        def train(x):
            model.zero_grad()
            fast = dict(model.named_parameters())
            loss = functional_call(model, fast, (x,)).square().mean()
            slopes = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {name: value - 0.1 * slope for (name, value), slope in zip(fast.items(), slopes, strict=True)}
            loss = functional_call(model, fast, (x,)).square().mean()
            loss.backward()
            return loss

        return compiler(train), (model,)

    seen = alike(build, rows, tolerance=1e-3)
    assert (seen.breaks, seen.refused) == ([], [])


def test_a_functional_call_leaves_the_module_as_it_was():
    def build(compiler):
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        run = compiler(lambda weights, buffers, x: functional_call(model, (weights, buffers), (x,)).square().mean())

        def step(x):
            loss = run(weights, buffers, x)
            return loss.detach(), torch.autograd.grad(loss, list(weights.values())), copy.deepcopy(buffers)

        return step, (model,)

    assert alike(build, rows, tolerance=1e-3).breaks == []


OF_FUNC = {
    "grad": lambda x: grad(lambda y: (y.sin() * y).sum())(x),
    "vmap of grad": lambda x: vmap(grad(lambda row: (row * 2).sin().sum()))(x),
    "jvp": lambda x: jvp(torch.sin, (x,), (torch.ones_like(x),)),
}


@pytest.mark.parametrize("name", OF_FUNC)
def test_transforms_of_torch_func_are_right(name):
    alike(lambda compiler: (compiler(OF_FUNC[name]), ()), rows)


def test_gradients_of_each_sample_take_no_gradients_themselves():
    def build(compiler):
        model = mlp()

        def each(x):
            weights = {name: value.detach() for name, value in model.named_parameters()}
            loss = grad(lambda weights, row: functional_call(model, weights, (row,)).square().mean())
            return vmap(loss, in_dims=(None, 0))(weights, x)

        return compiler(each), ()

    alike(build, rows, tolerance=1e-3)


# ---- weights that are computed, and averages of weights

NORMS = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
}


@pytest.mark.parametrize("name", NORMS)
def test_computed_weights_train_in_one_graph(name):
    def build(compiler):
        model = nn.Sequential(NORMS[name](nn.Linear(8, 8)), nn.Tanh())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return compiler(train), (model, optimizer)

    seen = alike(build, rows, steps=5, tolerance=1e-3)
    assert (seen.breaks, seen.refused, seen.segments) == ([], [], 2)


AVERAGES = {
    "equal": {},
    "moving": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
    "moving, one by one": {"avg_fn": get_ema_avg_fn(0.9)},
    "with buffers": {"use_buffers": True},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_are_updated_inside_the_step(name):
    def build(compiler):
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        average = AveragedModel(model, **AVERAGES[name])

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            return loss

        return compiler(train), (model, average)

    assert alike(build, rows, steps=6, tolerance=1e-3).refused == []


def test_an_lstm_trains_in_a_whole_step():
    """Its kernel saves something for backward if gradients are on, which they are not inside compiled code."""

    def build(compiler):
        model = nn.LSTM(8, 6, batch_first=True)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def train(x):
            optimizer.zero_grad()
            loss = model(x)[0].square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return compiler(train), (model,)

    seen = alike(build, lambda i: (torch.randn(2, 5, 8),), steps=5)
    assert (seen.breaks, seen.given_up, seen.refused) == ([], [], [])


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 30 * ctx.saved_tensors[0] ** 2


class Named(torch.autograd.Function):
    """What it notes hides attributes of its node."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor, ctx.name = factor, None
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor * 100, None


def test_attributes_of_a_context_are_not_those_of_its_node():
    def fn(x):
        return Cubed.apply(x) + Named.apply(x.sin(), 2)

    compiled = burnish.compile(fn)
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        compiled(x).sum().backward()
        fn(twin).sum().backward()
        torch.testing.assert_close(x.grad, twin.grad)
    assert burnish.was_compiled(compiled)
