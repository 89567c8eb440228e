"""Training steps with optimizers inside the compiled function: state, groups, schedules and closures."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

from .caller_programs import program_with_caller
from .harness import program


def model_and_step(make_optimizer):
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizer = make_optimizer(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def numbers(optimizer):
    """The optimizer's state as plain containers."""
    state = optimizer.state_dict()
    return state["state"], [{k: v for k, v in g.items() if k != "params"} for g in state["param_groups"]]


def data(i):
    return torch.randn(4, 2), torch.randn(4, 1)


@program
def test_sgd_step():
    model, _, step = model_and_step(lambda p: torch.optim.SGD(p, lr=0.1))
    return step, data, model


@program_with_caller
def test_momentum_buffers_are_born_in_the_first_step():
    model, optimizer, step = model_and_step(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))

    def caller(fn, x, y):
        return fn(x, y), numbers(optimizer)

    return step, caller, data, model


@program_with_caller
def test_adam_counts_its_steps():
    model, optimizer, step = model_and_step(lambda p: torch.optim.Adam(p, lr=0.05))

    def caller(fn, x, y):
        return fn(x, y), numbers(optimizer)

    return step, caller, lambda i: data(i), model


@program_with_caller
def test_adam_in_a_single_tensor_loop_and_in_foreach():
    model, optimizer, step = model_and_step(lambda p: torch.optim.AdamW(p, lr=0.05, foreach=False))

    def caller(fn, x, y, foreach):
        optimizer.param_groups[0]["foreach"] = foreach
        return fn(x, y), numbers(optimizer)[0]

    return step, caller, [(*data(i), f) for i, f in enumerate((False, True, False, True))], model


@program_with_caller
def test_learning_rate_changes_between_calls():
    model, optimizer, step = model_and_step(lambda p: torch.optim.SGD(p, lr=0.1))

    def caller(fn, x, y, lr):
        optimizer.param_groups[0]["lr"] = lr
        return fn(x, y)

    return step, caller, [(*data(i), lr) for i, lr in enumerate((0.1, 0.5, 0.0, 0.1))], model


@program_with_caller
def test_scheduler_steps_between_calls():
    model, optimizer, step = model_and_step(lambda p: torch.optim.SGD(p, lr=1.0))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)

    def caller(fn, x, y):
        loss = fn(x, y)
        scheduler.step()
        return loss, scheduler.get_last_lr()

    return step, caller, [data(i) for i in range(5)], model


@program
def test_scheduler_steps_inside():
    model, optimizer, step = model_and_step(lambda p: torch.optim.SGD(p, lr=1.0))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (n + 1))

    def fn(x, y):
        loss = step(x, y)
        scheduler.step()
        return loss, optimizer.param_groups[0]["lr"]

    return fn, [data(i) for i in range(4)], model


@program
def test_learning_rate_as_a_tensor():
    rate = torch.tensor(0.1)
    model, _, step = model_and_step(lambda p: torch.optim.SGD(p, lr=rate, foreach=False))

    def fn(x, y):
        loss = step(x, y)
        rate.mul_(0.5)
        return loss, rate

    return fn, data, model


@program
def test_parameter_groups_with_their_own_rates():
    model = nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 1)})
    optimizer = torch.optim.SGD(
        [{"params": model["body"].parameters(), "lr": 0.01}, {"params": model["head"].parameters()}],
        lr=0.1,
        weight_decay=0.1,
    )

    def fn(x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = mse_loss(model["head"](model["body"](x).relu()), y)
        loss.backward()
        optimizer.step()
        return loss

    return fn, data, model


@program_with_caller
def test_group_is_added_between_calls():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 1)])
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)

    def fn(x, y):
        optimizer.zero_grad()
        loss = mse_loss(model[1](model[0](x)), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def caller(fn, x, y, add):
        if add:
            optimizer.add_param_group({"params": list(model[1].parameters()), "lr": 0.5})
        return fn(x, y), len(optimizer.param_groups)

    return fn, caller, [(*data(i), add) for i, add in enumerate((False, True, False, False))], model


@program
def test_step_is_skipped_when_the_loss_is_bad():
    model, optimizer, _ = model_and_step(lambda p: torch.optim.SGD(p, lr=0.1))

    def fn(x, y):
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()
            return loss.item()
        return "skipped"

    bad = (torch.full((4, 2), float("nan")), torch.zeros(4, 1))
    return fn, [data(0), bad, data(1), bad, data(2)], model


@program
def test_gradients_accumulate_over_several_small_batches():
    model, optimizer, _ = model_and_step(lambda p: torch.optim.SGD(p, lr=0.1))
    count = [0]

    def fn(x, y, every):
        loss = mse_loss(model(x), y) / every
        loss.backward()
        count[0] += 1
        if count[0] % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach(), count[0]

    return fn, [(*data(i), 2) for i in range(5)], model, count


@program
def test_closure_is_called_by_the_optimizer():
    model, optimizer, _ = model_and_step(lambda p: torch.optim.LBFGS(p, max_iter=2))

    def fn(x, y):
        def closure():
            optimizer.zero_grad()
            loss = mse_loss(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return fn, data, model


@program_with_caller
def test_optimizer_state_is_loaded_between_calls():
    model, optimizer, step = model_and_step(lambda p: torch.optim.Adam(p, lr=0.1))
    saved = []

    def caller(fn, x, y, load):
        if load:
            optimizer.load_state_dict(saved[0])
        loss = fn(x, y)
        if not saved:
            saved.append({k: v for k, v in optimizer.state_dict().items()})
        return loss, numbers(optimizer)[0]

    return step, caller, [(*data(i), load) for i, load in enumerate((False, False, True, False))], model


@program_with_caller
def test_only_the_forward_is_compiled():
    model, optimizer, _ = model_and_step(lambda p: torch.optim.Adam(p, lr=0.1))

    def caller(fn, x, y):
        optimizer.zero_grad()
        loss = mse_loss(fn(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, caller, [data(i) for i in range(4)], model


@program
def test_hooks_of_the_optimizer_run():
    log = []
    model, optimizer, step = model_and_step(lambda p: torch.optim.SGD(p, lr=0.1))
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: log.append("before"))
    optimizer.register_step_post_hook(lambda opt, args, kwargs: log.append(opt.param_groups[0]["lr"]))
    return step, data, model, log


@program
def test_own_optimizer_class():
    class Signs(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        state = self.state[p]
                        state["n"] = state.get("n", 0) + 1
                        p.add_(p.grad.sign(), alpha=-group["lr"] / state["n"])

    model, _, step = model_and_step(lambda p: Signs(p, 0.1))
    return step, data, model


@program
def test_averaged_model_is_updated():
    model, _, step = model_and_step(lambda p: torch.optim.SGD(p, lr=0.1))
    average = torch.optim.swa_utils.AveragedModel(model)

    def fn(x, y):
        loss = step(x, y)
        average.update_parameters(model)
        return loss, average(x)

    return fn, data, average.module
