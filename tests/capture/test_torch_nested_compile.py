"""Compiled functions and modules inside compiled ones, and asking whether one is being compiled."""

import functools

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan

import burnish

from .caller_programs import program_with_caller, program_with_compiler
from .harness import program
from .operator_backend import operators


@program_with_compiler
def test_compiled_helper_inside(compiled):
    helper = compiled(lambda x, k: x * k + 1)

    def fn(x, k):
        return helper(helper(x, k), 2)

    return fn, [(torch.randn(2), k) for k in (1, 3, 1, 2)]


@program_with_compiler
def test_compiled_decorator_on_a_method(compiled):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        @compiled
        def part(self, x):
            return self.inner(x).relu()

        def forward(self, x):
            return self.part(x) + self.part(-x)

    return Model(), lambda i: (torch.randn(1, 2),)


@program_with_compiler
def test_compiled_submodule_is_trained_and_switched(compiled):
    model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5))
    inner = compiled(model)

    def fn(x, training):
        inner.train(training)
        model.zero_grad()
        out = inner(x) * 2
        out.sum().backward()
        return out, model[0].weight.grad, model.training

    return fn, [(torch.randn(3, 2), t) for t in (True, False, True, False)]


@program_with_compiler
def test_function_compiled_inside_the_function(compiled):
    def fn(x, k):
        inner = compiled(lambda v: v * k)
        return inner(x) + inner(x + 1)

    return fn, [(torch.randn(2), k) for k in (1, 2, 1)]


@program_with_compiler
def test_function_compiled_twice(compiled):
    def base(x):
        return x * 2 if x.sum() > 0 else x - 1

    return compiled(base), [(torch.full((2,), v),) for v in (1.0, -1.0, 3.0, -2.0)]


@program_with_compiler
def test_inner_with_breaks_and_side_effects(compiled):
    log = []

    @compiled
    def inner(x):
        log.append(x.sum().item())
        return x * len(log)

    def fn(x):
        y = inner(x)
        log.append("outer")
        return inner(y)

    return fn, lambda i: (torch.randn(2),), log


@program_with_compiler
def test_inner_raises_and_outer_catches(compiled):
    @compiled
    def inner(x, y):
        x.add_(1)
        return x @ y

    def fn(x, y):
        try:
            return inner(x, y)
        except RuntimeError:
            return x * 10

    return fn, [(torch.randn(2), torch.randn(n)) for n in (2, 3, 2, 3)]


@program_with_compiler
def test_recursive_compiled_function(compiled):
    @compiled
    def power(x, n):
        return x if n <= 1 else x * power(x, n - 1)

    def fn(x, n):
        return power(x, n) + 1

    return fn, [(torch.full((2,), 2.0) + n, n) for n in (1, 3, 2, 3)]


@program_with_compiler
def test_compiled_function_as_an_argument(compiled):
    doubled, squared = compiled(lambda x: x * 2), compiled(lambda x: x * x)

    def fn(f, x):
        return f(f(x)), list(map(f, x.unbind()))

    return fn, [(f, torch.randn(2)) for f in (doubled, squared, doubled, torch.sin)]


@program_with_compiler
def test_disabled_function_calls_a_compiled_one(compiled):
    inner = compiled(lambda x: x * 3)

    @burnish.disable
    def middle(x):
        return inner(x) + x.sum().item()

    def fn(x):
        return middle(x + 1) * 2

    return fn, lambda i: (torch.randn(2),)


@program_with_compiler
def test_compiled_function_is_disabled_again(compiled):
    helper = burnish.disable(compiled(lambda x: x * x.shape[0]))

    def fn(x):
        return helper(x + 1) + x

    return fn, [(torch.randn(n),) for n in (2, 3, 2)]


@program_with_compiler
def test_inner_function_writes_and_outer_reads(compiled):
    state = {"scale": 1.0}

    @compiled
    def grow(x):
        state["scale"] *= 2
        x.add_(state["scale"])

    def fn(x):
        grow(x)
        y = x * state["scale"]
        grow(x)
        return y, x * state["scale"]

    return fn, lambda i: (torch.zeros(2),), state


@program_with_compiler
def test_one_function_compiled_with_different_options(compiled):
    def wave(x):
        return x.sin() * x.shape[0]

    others = [compiled(wave), compiled(wave, dynamic=True), compiled(wave, dynamic=False)]

    def fn(x):
        return wave(x), [other(x) for other in others]

    return fn, [(torch.randn(n),) for n in (2, 3, 2, 5)]


@program_with_compiler
def test_compiled_generator_of_closures(compiled):
    def make(k):
        return compiled(lambda x: x + k)

    adders = [make(k) for k in range(3)]

    def fn(x, order):
        for i in order:
            x = adders[i](x) * 2
        return x

    return fn, [(torch.randn(2), order) for order in ((0, 1), (2,), (1, 1, 0), (0, 1))]


@program_with_compiler
def test_inner_under_the_grad_mode_of_outer(compiled):
    inner = compiled(lambda x: (x * 2, torch.is_grad_enabled()))

    def fn(x):
        with torch.no_grad():
            a, off = inner(x)
        b, on = inner(x)
        return a, off, b, on

    return fn, lambda i: (torch.randn(2, requires_grad=True),)


@program
def test_asking_for_compilation_gives_the_same_values():
    def fn(x, check):
        if not torch.compiler.is_compiling() and check:
            assert x.dim() == 1
        scale = 2.0 if torch.jit.is_scripting() else 3.0
        return x * scale, torch.jit.is_tracing(), burnish.is_compiling() in (True, False)

    return fn, [(torch.randn(3), c) for c in (True, False, True)]


@program_with_caller
def test_compiled_function_is_used_eagerly_under_its_own_name():
    def fn(x, k=2):
        "Scale x."
        return x * k

    def caller(fn, x):
        return fn(x), fn(x, k=3), fn.__name__, fn.__doc__

    return fn, caller, lambda i: (torch.randn(2),)


@pytest.mark.parametrize("compiler", [torch.compile, burnish.compile])
@pytest.mark.parametrize("arguments", [{}, {"fullgraph": True, "dynamic": False}])
def test_compiling_inside_is_part_of_the_graph(arguments, compiler):
    def scaled(x, by):
        return x * by

    def fn(x):
        return compiler(scaled, **arguments)(x, 2) + compiler(functools.partial(scaled, by=3))(x)

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for k in range(3):
        x = torch.randn(3) + k
        torch.testing.assert_close(compiled(x), x * 5)


@burnish.disable
def outside(x):
    return x * 2


@pytest.mark.parametrize("kind", ["function", "module"])
def test_break_in_an_inner_function_that_may_have_none_is_an_error(kind):
    left = []

    def compute(x, breaks):
        try:
            return outside(x) if breaks else x.sin()
        except Exception:
            left.append("handled")
        finally:
            left.append("finally")

    class Module(nn.Module):
        def forward(self, x, breaks):
            return compute(x, breaks)

    inner = burnish.compile(compute if kind == "function" else Module(), backend="eager", fullgraph=True)

    def catches(x, breaks):
        y = x + 1
        try:
            return inner(y, breaks)
        except burnish.errors.Unsupported as error:
            return y, str(error).splitlines()[0]

    compiled = burnish.compile(catches, backend="eager")
    uncaught = burnish.compile(lambda x, breaks: inner(x, breaks) + 1, backend="eager")
    x = torch.randn(3)
    for breaks in (False, True, True, False, True):
        left.clear()
        found = compiled(x, breaks)
        if breaks:
            assert torch.equal(found[0], x + 1) and found[1].startswith("Graph break B203")
            with pytest.raises(burnish.errors.Unsupported, match="B203"):
                uncaught(x, breaks)
        else:
            assert torch.equal(found, (x + 1).sin())
            assert torch.equal(uncaught(x, breaks), x.sin() + 1)
        assert left == ["finally", "finally"]


def test_inner_function_whose_graph_only_ends_inside_of_the_outer_one_runs_by_itself():
    seen = []

    def read(x):
        return x * len(sorted(seen, key=abs))

    inner = burnish.compile(read, backend="eager", fullgraph=True)

    def fn(x):
        seen.append(len(seen))
        return inner(x) + 1

    compiled = burnish.compile(fn, backend="eager")
    for i in range(4):
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * (i + 1) + 1)


@pytest.mark.parametrize("backend", ["burnish", operators], ids=["burnish", "operators"])
def test_loop_that_torch_compiles_itself_is_one_graph(backend, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda fn, **_: burnish.compile(fn, backend=backend, fullgraph=True))
    xs, weight = torch.linspace(0.2, 0.8, 4), torch.tensor(0.7, requires_grad=True)

    def step(carry, x):
        following = carry * weight + x
        return following, following * weight

    for factor in (1.0, 2.0):
        last, every = scan(step, torch.zeros(()), xs * factor)
        (found,) = torch.autograd.grad(last + every.sum(), weight)
        carry, total = torch.zeros(()), torch.zeros(())
        for x in xs * factor:
            carry = carry * weight + x
            total = total + carry * weight
        torch.testing.assert_close(found, torch.autograd.grad(carry + total, weight)[0])
