"""Learning rate schedules stepped inside the compiled function: their counters and rates are numbers that change."""

import pytest
import torch

from .training_harness import rows, small_model, trained_alike

L = torch.optim.lr_scheduler
STEPS = 20
SCHEDULES = {  # how to make it, and how many segments its own branches ask for
    "cosine": (lambda o: L.CosineAnnealingLR(o, 50), 2),
    "lambda": (lambda o: L.LambdaLR(o, lambda n: 1 / (n + 1)), 2),
    "multiplicative": (lambda o: L.MultiplicativeLR(o, lambda n: 0.9), 2),
    "exponential": (lambda o: L.ExponentialLR(o, 0.9), 2),
    "polynomial": (lambda o: L.PolynomialLR(o, 30), 2),
    "cyclic": (lambda o: L.CyclicLR(o, 0.01, 0.1, cycle_momentum=False), 2),
    "step": (lambda o: L.StepLR(o, 5), 3),  # a step that decays, and one that does not
    "constant": (lambda o: L.ConstantLR(o), 3),
    "linear": (lambda o: L.LinearLR(o), 3),
    "one cycle": (lambda o: L.OneCycleLR(o, 0.1, total_steps=25), 3),
    "restarts": (lambda o: L.CosineAnnealingWarmRestarts(o, 6), 3),
    "chained": (lambda o: L.ChainedScheduler([L.ExponentialLR(o, 0.9), L.ConstantLR(o)], o), 3),
    "milestones": (lambda o: L.MultiStepLR(o, [3, 7]), 4),
    "sequential": (lambda o: L.SequentialLR(o, [L.LinearLR(o, total_iters=4), L.CosineAnnealingLR(o, 20)], [4]), 5),
}
OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "rate as a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
}


def step_with(make_optimizer, make_schedule, step=lambda scheduler, loss: scheduler.step()):
    def build():
        model = small_model()
        optimizer = make_optimizer(model.parameters())
        scheduler = make_schedule(optimizer)

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            step(scheduler, loss)
            return loss

        return train, (model, optimizer, scheduler)

    return build


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_is_part_of_the_graph(schedule, optimizer):
    make_schedule, segments = SCHEDULES[schedule]
    seen = trained_alike(step_with(OPTIMIZERS[optimizer], make_schedule), rows, STEPS)
    assert (seen.breaks, seen.given_up) == ([], [])
    assert seen.segments <= segments


def test_a_schedule_that_looks_at_the_loss_may_break():
    seen = trained_alike(
        step_with(
            OPTIMIZERS["adam"],
            lambda o: L.ReduceLROnPlateau(o, patience=1),
            lambda scheduler, loss: scheduler.step(loss),
        ),
        rows,
        STEPS,
    )
    assert seen.given_up == []


def test_a_schedule_of_ones_own():
    class Warmup(L.LRScheduler):
        def __init__(self, optimizer, warm):
            self.warm = warm
            super().__init__(optimizer)

        def get_lr(self):
            return [base * min(1.0, (self.last_epoch + 1) / self.warm) for base in self.base_lrs]

    seen = trained_alike(step_with(OPTIMIZERS["adam"], lambda o: Warmup(o, 30)), rows, STEPS)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_rates_are_reported_with_the_loss():
    def build():
        model = small_model()
        optimizer = torch.optim.Adam(model.parameters())
        scheduler = L.CosineAnnealingLR(optimizer, 50)
        rates = []

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
            return loss, scheduler.get_last_lr()[0], optimizer.param_groups[0]["lr"]

        return train, (model, optimizer, scheduler, rates)

    seen = trained_alike(build, rows, STEPS)
    assert (seen.breaks, seen.segments) == ([], 2)
