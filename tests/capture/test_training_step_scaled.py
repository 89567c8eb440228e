"""Steps of `torch.amp.GradScaler`: skipped in the graph where a gradient is infinite, with all state as in eager."""

import pytest
import torch
from torch import nn, optim
from torch.utils.checkpoint import checkpoint

import burnish

from .training_harness import small_model, trained_alike

INFINITE = {1, 2, 5, 6, 9}
OPTIMIZERS = [
    (optim.SGD, {}),
    (optim.SGD, {"momentum": 0.9, "nesterov": True, "foreach": True}),
    (optim.SGD, {"momentum": 0.9, "nesterov": True, "foreach": False, "weight_decay": 0.1}),
    (optim.SGD, {"fused": True, "momentum": 0.9}),
    (optim.Adam, {}),
    (optim.AdamW, {"foreach": True, "amsgrad": True}),
    (optim.AdamW, {"fused": True}),
    (optim.Adagrad, {"foreach": True}),
    (optim.RMSprop, {"momentum": 0.5, "centered": True}),
    (optim.Rprop, {}),
    (optim.NAdam, {"foreach": True}),
    (optim.RAdam, {}),
    (optim.RAdam, {"foreach": True}),
    (optim.ASGD, {"foreach": True}),
    (optim.Adadelta, {}),
    (optim.Adamax, {"foreach": True}),
]


def batches(i):
    x = torch.randn(5, 4)
    if i in INFINITE:
        x[0, 0] = float("inf" if i % 2 else "nan")
    return x, 0.03 * i if i % 5 == 4 else None


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_step_is_skipped_in_the_graph(kind, options):
    """With groups, parameters without gradients, another learning rate and clipped gradients."""

    def build():
        model, unused = small_model(), nn.Linear(2, 2)
        parameters = list(model.parameters())
        groups = [{"params": parameters[:2], "lr": 0.05}, {"params": parameters[2:]}, {"params": unused.parameters()}]
        optimizer = kind(groups, lr=0.1, **options)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def train(x, rate):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            if rate is not None:
                optimizer.param_groups[1]["lr"] = rate
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss

        return train, (model, unused, optimizer, scaler)

    seen = trained_alike(build, batches, steps=14)
    # The first steps make state, which is not a select.
    assert len(seen.breaks) <= 2 and set(seen.breaks) <= {"B103"} and seen.given_up == []


class Own(optim.Optimizer):
    """An optimizer of the user's: what a step does for a parameter is `change`."""

    def __init__(self, parameters, change):
        super().__init__(parameters, {"lr": 0.1})
        self.change = change

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.change(self, p)


def by_views(optimizer, p):
    flat = p.detach().view(-1)
    flat[:1].add_(1.0)
    p.sub_(p.grad, alpha=0.1)
    p.data.mul_(0.5)
    flat[0:2].mul_(3.0)
    flat.add_(flat)


def by_out(optimizer, p):
    torch.sub(p, p.grad, alpha=0.1, out=p)
    p[0] *= 1.5
    p.grad.zero_()


def counted(optimizer, p):
    optimizer.count = getattr(optimizer, "count", 0) + 1
    p.sub_(p.grad, alpha=0.1 / optimizer.count)


def with_noise(optimizer, p):
    p.sub_(p.grad + torch.randn_like(p), alpha=0.1)


def with_new_state(optimizer, p):
    state = optimizer.state[p]
    state["average"] = state.get("average", torch.zeros_like(p)) * 0.9 + p.grad
    p.sub_(state["average"], alpha=0.1)


def clears(optimizer, p):
    p.sub_(p.grad, alpha=0.1)
    p.grad = None


def sets_data(optimizer, p):
    p.data = p.data - 0.1 * p.grad


def branches(optimizer, p):
    p.sub_(p.grad, alpha=0.1 if p.grad.sum() > 0 else 0.2)


def raises(optimizer, p):
    p.sub_(p.grad, alpha=0.1)
    if p.ndim == 1:
        raise ValueError("one dimension")


def writes_statistics(optimizer, p):
    torch.nn.functional.batch_norm(
        torch.ones(2, p.numel()), optimizer.mean[: p.numel()], optimizer.mean[: p.numel()] + 1, training=True
    )
    p.sub_(p.grad, alpha=0.1)


def draws_from_its_own(optimizer, p):
    p.sub_(p.grad + torch.rand(p.shape, generator=optimizer.generator), alpha=0.1)


@pytest.mark.parametrize(
    "change",
    [
        *(by_views, by_out, counted, with_noise, with_new_state, clears, sets_data, branches, raises),
        *(writes_statistics, draws_from_its_own),
    ],
)
def test_steps_of_other_optimizers_are_skipped_as_in_eager(change):
    """By a branch: no tensor may show what such a step leaves behind."""

    def build():
        model, notes = small_model(), []
        optimizer = Own(model.parameters(), change)
        optimizer.mean, optimizer.generator = torch.zeros(64), torch.Generator()
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def train(x, rate):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            notes.append(getattr(optimizer, "count", None))
            return loss

        return train, (model, optimizer, scaler, notes, optimizer.mean, optimizer.generator)

    assert "B103" in trained_alike(build, batches, steps=12).breaks


def test_a_skipped_step_leaves_the_mark_of_a_schedule():
    """A schedule notes each step of its optimizer, and warns if there was none before its own."""

    def build():
        model, marks = small_model(), []
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        schedule = optim.lr_scheduler.StepLR(optimizer, 3)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def train(x, rate):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            return loss

        def step(x, rate):
            result = run(x, rate)
            marks.append(getattr(optimizer, "_opt_called", None))
            if len(marks) in (4, 5):
                optimizer._opt_called = False
            return result

        def surrounded(compiler):
            nonlocal run
            run = compiler(train)
            return step

        run = train
        return surrounded, (model, optimizer, scaler, schedule, marks)

    def built(compiler):
        surrounded, parts = build()
        return surrounded(compiler), parts

    seen = trained_alike(built, batches, steps=12)
    assert seen.given_up == []


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_a_checkpoint_that_changes_a_tensor_object_changes_it_once(backend):
    p, buffer = nn.Parameter(torch.ones(3)), torch.zeros(3)

    def inner(x):
        p.data = p.data - 1
        buffer.requires_grad = not buffer.requires_grad
        return x * p

    compiled = burnish.compile(lambda x: checkpoint(inner, x, use_reentrant=False).sum(), backend=backend)
    for k in range(3):
        compiled(torch.ones(3, requires_grad=True))
        assert p.tolist() == [-k] * 3 and buffer.requires_grad is (k % 2 == 0)
