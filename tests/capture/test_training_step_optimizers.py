"""Whole training steps with every optimizer of torch.optim: one graph, eager's numbers, two compiles."""

import copy

import pytest
import torch

from .training_harness import rows, small_model, trained_alike

OPTIMIZERS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}),
    "nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "maximize": ("SGD", {"lr": 0.1, "maximize": True}),
    "adam": ("Adam", {}),
    "amsgrad": ("Adam", {"amsgrad": True, "weight_decay": 0.01}),
    "adamw": ("AdamW", {}),
    "rmsprop": ("RMSprop", {}),
    "centered": ("RMSprop", {"centered": True, "momentum": 0.5}),
    "adagrad": ("Adagrad", {"lr_decay": 0.01}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "nadamw": ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.01}),
    "adadelta": ("Adadelta", {}),
    "rprop": ("Rprop", {}),
    "adafactor": ("Adafactor", {}),
}
WITH_FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
CASES = [
    (name, flags)
    for name, (kind, _) in OPTIMIZERS.items()
    for flags in ({}, {"foreach": True}, {"foreach": False}, *([{"fused": True}] if kind in WITH_FUSED else []))
]


def step_with(make_optimizer, clears_first=True):
    def build():
        model = small_model()
        optimizer = make_optimizer(model.parameters())

        def train(x):
            if clears_first:
                optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            if not clears_first:
                optimizer.zero_grad()
            return loss

        return train, (model, optimizer)

    return build


@pytest.mark.parametrize(("name", "flags"), CASES, ids=[f"{n}-{'-'.join(f) or 'default'}" for n, f in CASES])
def test_a_step_is_one_graph_and_its_state_is_eagers(name, flags):
    kind, options = OPTIMIZERS[name]
    seen = trained_alike(step_with(lambda p: getattr(torch.optim, kind)(p, **options, **flags)), rows, steps=8)
    assert (seen.breaks, seen.given_up, seen.segments) == ([], [], 2)


@pytest.mark.parametrize("flags", [{}, {"foreach": True}], ids=["default", "foreach"])
def test_radam_branches_on_its_step_count_without_a_break(flags):
    """It starts with plain steps and goes over to rectified ones: a variant for either."""
    seen = trained_alike(step_with(lambda p: torch.optim.RAdam(p, **flags)), rows, steps=12)
    assert (seen.breaks, seen.given_up, seen.segments) == ([], [], 3)


@pytest.mark.parametrize(
    "flags",
    [{}, {"foreach": True}, {"weight_decay": 0.1, "maximize": True}],
    ids=["default", "foreach", "other formula"],
)
def test_averaged_sgd_begins_to_average_without_a_break(flags):
    """From step `t0` on it averages; by its own way of asking, a step earlier or later it is another formula."""
    seen = trained_alike(step_with(lambda p: torch.optim.ASGD(p, lr=0.1, t0=4, **flags)), rows, steps=12)
    assert (seen.breaks, seen.given_up) == ([], []) and seen.segments <= 4


def step_with_closure(make_optimizer):
    def build():
        model = small_model()
        optimizer = make_optimizer(model.parameters())

        def train(x):
            def closure():
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                return loss

            return optimizer.step(closure)

        return train, (model, optimizer)

    return build


def test_lbfgs_may_break_and_is_right():
    trained_alike(step_with_closure(lambda p: torch.optim.LBFGS(p, max_iter=3)), rows, steps=3)


def test_gradients_cleared_after_the_step_are_no_outputs():
    seen = trained_alike(step_with(lambda p: torch.optim.SGD(p, lr=0.1), clears_first=False), rows)
    assert (seen.breaks, seen.segments) == ([], 1)
    (graph,) = seen.graphs
    (outputs,) = next(n for n in graph.graph.nodes if n.op == "output").args
    assert len(outputs) == 1  # the loss
    assert not any(n.target == "clone" for n in graph.graph.nodes)  # nothing else holds the gradients


def test_a_step_with_a_closure():
    seen = trained_alike(step_with_closure(torch.optim.AdamW), rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_the_step_alone():
    def build(compiled):
        model = small_model()
        optimizer = torch.optim.Adam(model.parameters())
        update = compiled(optimizer.step)

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            update()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_parameter_groups_with_their_own_settings():
    def build():
        model = small_model()
        optimizer = torch.optim.Adam(
            [
                {"params": model[0].parameters(), "lr": 0.01, "weight_decay": 0.1},
                {"params": model[2].parameters(), "betas": (0.5, 0.9)},
            ],
            lr=0.1,
        )

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, rows)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_a_rate_that_is_set_between_the_calls_is_no_new_graph():
    def build():
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(x, rate):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer)

    seen = trained_alike(build, lambda i: (*rows(i), 0.1 / (i + 1)), steps=12)
    assert (seen.breaks, seen.segments) == ([], 2)


def test_a_loaded_state_is_used():
    def build(compiled):
        model = small_model()
        optimizer = torch.optim.Adam(model.parameters())
        saved = []

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = compiled(train)

        def step(x, i):
            if i == 3:
                optimizer.load_state_dict(saved.pop())
            loss = run(x)
            if i == 0:
                saved.append(copy.deepcopy(optimizer.state_dict()))
            return loss

        return step, (model, optimizer)

    seen = trained_alike(build, lambda i: (*rows(i), i))
    assert (seen.breaks, seen.segments) == ([], 2)


def test_hooks_of_the_optimizer_run():
    def build():
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        log = []
        optimizer.register_step_pre_hook(lambda opt, args, kwargs: log.append("before"))
        optimizer.register_step_post_hook(lambda opt, args, kwargs: log.append("after"))

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train, (model, optimizer, log)

    assert trained_alike(build, rows).breaks == []
