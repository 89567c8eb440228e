"""Backward hooks of modules in captured functions: order, counts, what they change, and their coming and going."""

import functools

import torch
from torch import nn
from torch.nn.modules import module as of_modules

import burnish

from .both_backends import in_one_graph
from .caller_programs import program_with_caller


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))


def rows(i):
    return (torch.linspace(-1, 1 + i / 4, 12).reshape(3, 4).requires_grad_(),)


def trained(model):
    def caller(fn, x, *rest):
        model.zero_grad()
        out = fn(x, *rest)
        out.square().sum().backward()
        return out, x, [p.grad for p in model.parameters()]

    return caller


def sums(gradients):
    return [None if g is None else round(g.sum().item(), 3) for g in gradients]


@in_one_graph
def test_hooks_see_the_gradients_in_order():
    model, log = network(), []
    for k, part in enumerate(model):
        part.register_full_backward_hook(lambda m, gi, go, k=k: log.append((k, sums(gi), sums(go))))
        part.register_full_backward_pre_hook(lambda m, go, k=k: log.append((k, "before", sums(go))))
    model.register_full_backward_hook(lambda m, gi, go: log.append(("whole", sums(gi))))
    return model, trained(model), rows, log


@in_one_graph
def test_hooks_change_the_gradients():
    model = network()
    model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    model[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    model[0].register_full_backward_hook(lambda m, gi, go: (gi[0].clamp(-0.1, 0.1),))
    return model, trained(model), rows


@in_one_graph
def test_a_module_of_several_arguments_and_results():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, a, scale, b, *, power=1):
            return self.inner(a) * scale + b, a * b**power

    torch.manual_seed(0)
    two, log = Two(), []
    two.register_full_backward_hook(lambda m, gi, go: log.append((sums(gi), sums(go))))

    def fn(x):
        a, b = two(x, 2.0, x.sin(), power=2)
        return a * 2 + b.cos()

    return fn, trained(two), rows, log


@in_one_graph
def test_the_same_module_twice():
    layer, log = nn.Linear(4, 4), []
    torch.manual_seed(0)
    nn.init.normal_(layer.weight)
    nn.init.zeros_(layer.bias)
    layer.register_full_backward_hook(lambda m, gi, go: log.append(sums(go)))
    return (lambda x: layer(layer(x).tanh())), trained(layer), rows, log


@in_one_graph
def test_activations_and_gradients_are_kept():
    model, kept = network(), {}
    model[0].register_forward_hook(lambda m, args, out: kept.__setitem__("activation", out))
    model[0].register_full_backward_hook(lambda m, gi, go: kept.__setitem__("gradient", go[0]))

    def caller(fn, x):
        fn(x).sum().backward()
        return (kept["gradient"] * kept["activation"]).sum(1), x

    return model, caller, rows


@in_one_graph
def test_without_gradients_nothing_runs():
    model, log = network(), []
    model[0].register_full_backward_hook(lambda m, gi, go: log.append("never"))

    def caller(fn, x):
        with torch.no_grad():
            return fn(x)

    return model, caller, rows, log


@program_with_caller
def test_hooks_come_and_go_between_calls():
    model, log, handles = network(), [], []
    caller = trained(model)

    def change(fn, x, what):
        if what == "add":
            handles.append(model[0].register_full_backward_hook(lambda m, gi, go: log.append(sums(go))))
        elif what == "replace":
            handles.pop().remove()
            handles.append(model[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * 5,)))
        elif what == "remove":
            handles.pop().remove()
        return caller(fn, x)

    changes = ["", "add", "", "replace", "", "remove", ""]
    return model, change, [(*rows(i), what) for i, what in enumerate(changes)], log


@program_with_caller
def test_a_break_inside_a_hooked_module():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            y = self.inner(x)
            return y * 2 if y.sum() > 0 else y * 3

    torch.manual_seed(0)
    model, log = Breaks(), []
    model.register_full_backward_hook(lambda m, gi, go: log.append((sums(gi), sums(go))))
    return (lambda x: model(x.sin()).cos()), trained(model), rows, log


def test_a_training_step_ends_before_backward():
    """The hooks are the user's code: backward runs natively, and the optimizer's step is compiled after it."""
    found = []
    for is_compiled in (False, True):
        model, log = network(), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model[0].register_full_backward_hook(lambda m, gi, go, log=log: log.append(sums(go)))

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = burnish.compile(step) if is_compiled else step
        found.append(([run(*rows(i)) for i in range(3)], list(model.parameters()), log))
    for a, b in zip([*found[0][0], *found[0][1]], [*found[1][0], *found[1][1]], strict=True):
        torch.testing.assert_close(a, b)
    assert found[0][2] == found[1][2] and len(found[0][2]) == 3


def with_hooks_for_all(caller, registers):
    """The caller, with hooks for all modules during its call."""

    def call(fn, *args):
        handles = [register() for register in registers]
        try:
            return caller(fn, *args)
        finally:
            for handle in handles:
                handle.remove()

    return call


@in_one_graph
def test_hooks_for_all_modules_come_before_those_of_a_module():
    model, log = network(), []
    model[2].register_full_backward_hook(lambda m, gi, go: log.append(("own", sums(gi))))
    model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))

    def note(m, gi, go):
        log.append((type(m).__name__, sums(gi), sums(go)))
        return tuple(None if g is None else g * 2 for g in gi)

    registers = [
        lambda: of_modules.register_module_full_backward_hook(note),
        lambda: of_modules.register_module_full_backward_pre_hook(lambda m, go: log.append(("before", sums(go)))),
    ]
    return model, with_hooks_for_all(trained(model), registers), rows, log


@program_with_caller
def test_hooks_for_all_modules_come_and_go_between_calls():
    model, log = network(), []

    def full():
        return of_modules.register_module_full_backward_hook(lambda m, gi, go: log.append((type(m).__name__, sums(go))))

    def before():
        return of_modules.register_module_full_backward_pre_hook(lambda m, go: (go[0] * 2,))

    def change(fn, x, registers):
        return with_hooks_for_all(trained(model), registers)(fn, x)

    changes = [[], [full], [full], [before], [full, before], [], [full, full], [before]]
    return model, change, [(*rows(i), registers) for i, registers in enumerate(changes)], log


def test_hooks_for_all_modules_that_are_not_full_ones_break(monkeypatch):
    monkeypatch.setattr(of_modules, "_global_is_full_backward_hook", None)
    model, log = network(), []
    register = functools.partial(of_modules.register_module_backward_hook, lambda m, gi, go: log.append(sums(go)))
    caller, logs = with_hooks_for_all(trained(model), [register]), []
    compiled = burnish.compile(model)
    for run in (model, compiled, compiled):
        caller(run, *rows(0))
        logs.append(log[:])
        log.clear()
    assert logs[0] == logs[1] == logs[2] and len(logs[0]) == 4


def test_a_program_that_finds_hooks_in_its_own_way(monkeypatch):
    """It replaces torch's function between two calls, and then puts it back."""
    log = []
    find = nn.Module._get_backward_hooks

    def found(self):
        log.append("asked")
        full, others = find(self)
        return [*full, lambda m, gi, go: log.append("added")], others

    def trace(run):
        for finds in (find, find, found, found, find):
            monkeypatch.setattr(nn.Module, "_get_backward_hooks", finds)
            run(*rows(0)).sum().backward()
            log.append("end")
        seen = log[:]
        log.clear()
        return seen

    model = network()
    model[1].register_full_backward_hook(lambda m, gi, go: log.append("own"))
    assert trace(model) == trace(burnish.compile(model, options={"never_slower": False}))
