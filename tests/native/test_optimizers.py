"""Optimizers of torch.optim compiled with every flag: twenty steps equal eager's."""

import io

import pytest
import torch
from torch import nn

from .compare_training import alike

L = torch.optim.lr_scheduler
WITH_FOREACH = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adadelta", "Adagrad", "Adamax", "RMSprop", "Rprop")
SLOW = ("NAdam", "Adadelta", "Adagrad", "RMSprop", "Rprop")
CASES = [
    *(pytest.param(kind, {"foreach": True}, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in WITH_FOREACH),
    ("SGD", {"fused": True}),
    ("SGD", {"fused": True, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"fused": True, "momentum": 0.9, "dampening": 0.2, "maximize": True}),
    ("Adam", {"fused": True, "amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"fused": True, "maximize": True}),
    ("AdamW", {"fused": True}),
    ("Adagrad", {"fused": True, "lr_decay": 0.01, "weight_decay": 0.1}),
    ("Rprop", {}),
    ("Adafactor", {}),
    ("Muon", {}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
]


def world(kind, options, lr=0.01, scheduler=None):
    def build(compiler):
        bias = kind != "Muon"
        model = nn.Linear(4, 3, bias=bias)
        rate = torch.tensor(lr) if options.get("tensor") else lr
        flags = {name: value for name, value in options.items() if name != "tensor"}
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=rate, **flags)
        plan = scheduler and scheduler(optimizer)

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            if plan is not None:
                plan.step()
            return loss

        return compiler(train), (model, optimizer)

    return build


def rows(i):
    return (torch.randn(5, 4),)


def case_name(value):
    return value if isinstance(value, str) else "-".join(value) or "default"


@pytest.mark.parametrize(("kind", "options"), CASES, ids=case_name)
def test_steps_are_compiled_and_twenty_of_them_go_as_eager_goes(kind, options):
    """One segment for the step that creates the state, which runs once and is not compiled, one for the others. RAdam
    has a second formula."""
    seen = alike(world(kind, options), rows, steps=20)
    assert (seen.breaks, seen.refused, seen.given_up) == ([], [], [])
    assert seen.segments == (3 if kind == "RAdam" else 2)
    assert seen.planned == 2 * (seen.segments - 1)


SCHEDULES = {
    "cyclic": lambda o: L.CyclicLR(o, 0.01, 0.1, cycle_momentum=False, step_size_up=6),
    "one cycle": lambda o: L.OneCycleLR(o, 0.1, total_steps=25),
    "averaging": lambda o: torch.optim.swa_utils.SWALR(o, swa_lr=0.05, anneal_epochs=5),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_in_a_tensor_is_filled_by_a_schedule(name):
    seen = alike(world("AdamW", {"tensor": True}, scheduler=SCHEDULES[name]), rows, steps=20)
    assert (seen.breaks, seen.refused, seen.given_up) == ([], [], []) and seen.segments <= 5


@pytest.mark.falls_back("refused")
def test_lbfgs_and_sparse_adam_break_and_go_as_eager_goes():
    def searched(compiler):
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

        def train(x):
            def closure():
                optimizer.zero_grad()
                loss = model(x.double()).square().mean()
                loss.backward()
                return loss

            return optimizer.step(closure)

        return compiler(train), (model, optimizer)

    def sparse(compiler):
        model = nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.SparseAdam(model.parameters(), 0.01)

        def train(x):
            optimizer.zero_grad()
            loss = model((x * 3).abs().long()).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return compiler(train), (model, optimizer)

    alike(searched, rows, steps=3, tolerance=1e-7)
    assert alike(sparse, rows, steps=6).given_up == []


@pytest.mark.parametrize("options", [{}, {"t0": 6}, {"t0": 6, "foreach": True, "weight_decay": 0.1}], ids=case_name)
def test_averaged_sgd_is_one_graph_for_each_of_its_formulas(options):
    seen = alike(world("ASGD", options), rows, steps=20)
    assert (seen.breaks, seen.refused, seen.given_up) == ([], [], [])
    assert seen.segments <= (4 if "t0" in options else 2)


# ---- operators over lists of tensors


def lists():
    return [torch.rand(3) + 0.5, torch.rand(2, 2) + 0.5]


def sample_of(operator):
    """Arguments for each kind that these operators have."""
    args, kwargs = [], {}
    for argument in operator._schema.arguments:
        kind = str(argument.type)
        if "List[Tensor]" in kind:
            args.append(lists())
        elif kind == "Tensor":
            args.append(torch.tensor(0.5))
        elif "List[number]" in kind:
            args.append([0.5, 2.0])
        elif argument.name == "alpha":
            kwargs["alpha"] = 2
        elif kind == "number" and not argument.kwarg_only:
            args.append(2)
    return args, kwargs


def overloads():
    for name in sorted({n.split("::")[1].split(".")[0] for n in torch._C._dispatch_get_all_op_names()}):
        if name.startswith("_foreach_") and not name.endswith("_out") and hasattr(torch, name):
            packet = getattr(torch.ops.aten, name)
            yield from (getattr(packet, overload) for overload in packet.overloads() if "out" not in overload)


NOT_YET = ("_foreach_mm", "_foreach_powsum")


@pytest.mark.slow
def test_all_operators_over_lists_equal_eager():
    count = 0
    for operator in overloads():
        if operator._schema.name.split("::")[1] in NOT_YET or (
            operator._overloadname == "Tensor" and "addc" in str(operator)
        ):
            continue
        args, kwargs = sample_of(operator)
        public = getattr(torch, operator._schema.name.split("::")[1])

        def build(compiler, public=public, args=args, kwargs=kwargs):
            def call(*given):
                answer = public(*given, **kwargs)
                return given[0] if answer is None else answer

            return compiler(call), ()

        seen = alike(build, lambda i, args=args: tuple(args), steps=3, tolerance=1e-6)
        assert seen.refused == [], operator
        assert nn.Linear(2, 2)(torch.ones(1, 2)).requires_grad
        count += 1
    assert count > 120


def test_gradients_flow_as_before_after_an_overload_did_not_fit():
    """Torch looks for the overload that fits by trying them, and writes each failure down, with the tensors in it."""

    def build(compiler):
        return compiler(lambda values, bounds: torch._foreach_clamp_max(values, bounds)), ()

    assert alike(build, lambda i: (lists(), lists())).refused == []
    assert nn.Linear(2, 2)(torch.ones(1, 2)).requires_grad


def test_the_state_of_a_fused_optimizer_is_saved_and_loaded_midway():
    def build(compiler):
        model = nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01, fused=True)

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = compiler(train)

        def step(x, i):
            if i == 4:
                file = io.BytesIO()
                torch.save((model.state_dict(), optimizer.state_dict()), file)
                file.seek(0)
                for part, state in zip((model, optimizer), torch.load(file), strict=True):
                    part.load_state_dict(state)
            return run(x)

        return step, (model, optimizer)

    seen = alike(build, lambda i: (torch.randn(5, 4), i), steps=8)
    assert (seen.breaks, seen.refused) == ([], [])
