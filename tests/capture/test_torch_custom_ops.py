"""Operators registered from Python: nodes of the graph, before and after the program writes to Python objects."""

import functools
import gc
import math
import os
import random
import sys

import numpy as np
import pytest
import torch
from torch.library import custom_op

import burnish

from ..forked_programs import TORCH, run_program
from ..recorded_events import recorded
from .harness import program

X = torch.tensor([0.5, -1.5, 2.0])
SCHEMA = "(Tensor x) -> Tensor"
FACTOR = 1.0
LIMITS = {"top": 2.0}


class State:
    calls = 0


STATE = State()


def offset(x):
    return x + FACTOR


@custom_op("burnish_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.mul(x, by)


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


def keep_factor(ctx, inputs, output):
    ctx.by = inputs[1]


def scaled_backward(ctx, gradient):
    return gradient * ctx.by, None


scaled.register_autograd(scaled_backward, setup_context=keep_factor)


@scaled.register_vmap
def _(info, in_dims, x, by):
    return scaled(x, by), in_dims[0]


@custom_op("burnish_tests::double_", mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    x.mul_(2)


@custom_op("burnish_tests::shifted", mutates_args=())
def shifted(x: torch.Tensor) -> torch.Tensor:
    return offset(scaled(x, 1.0))


@shifted.register_fake
def _(x):
    return torch.empty_like(x)


@custom_op("burnish_tests::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    return x + STATE.calls


@counted.register_fake
def _(x):
    return torch.empty_like(x)


@custom_op("burnish_tests::limited", mutates_args=())
def limited(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(max=LIMITS["top"])


@limited.register_fake
def _(x):
    return torch.empty_like(x)


@custom_op("burnish_tests::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x.sort().values * 3


@custom_op("burnish_tests::refuses", mutates_args=())
def refuses(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        raise LookupError("positive")
    return x * 1


@refuses.register_fake
def _(x):
    return torch.empty_like(x)


LIBRARY = torch.library.Library("burnish_tests_library", "DEF")
LIBRARY.define("halved(Tensor x) -> Tensor")
LIBRARY.impl("halved", lambda x: x / 2, "CPU")
LIBRARY.impl("halved", lambda x: torch.empty_like(x), "Meta")


def counts(operator, *more):
    """A program that writes to an object before it calls the operator, and reads it afterwards."""

    def make():
        class Counter:
            calls = 0

        counter = Counter()

        def fn(x):
            counter.calls += 1
            y = operator(x + 1, *more)
            counter.last = counter.calls
            return y * 2, counter.last

        return fn, [(X,), (-X,), (X * 2,)], counter

    return make


@program(breaks=0)
def test_an_operator_after_a_write():
    return counts(scaled, 2.0)()


@program(breaks=0)
def test_an_operator_that_calls_functions_and_operators_after_a_write():
    return counts(shifted)()


@program(breaks=0)
def test_an_operator_that_writes_to_its_argument_after_a_write():
    class Counter:
        calls = 0

    counter = Counter()

    def fn(x):
        counter.calls += 1
        y = x + counter.calls
        double_(y)
        return y + 1

    return fn, [(X,), (-X,), (X * 2,)], counter


@program
def test_an_operator_that_reads_what_was_written():
    def fn(x):
        STATE.calls += 1
        y = counted(x)
        STATE.calls += 1
        return y * 2

    STATE.calls = 0
    return fn, [(X,), (-X,), (X * 2,)]


@program
def test_an_operator_that_reads_a_table_after_a_write():
    def fn(x):
        LIMITS["top"] += 1.0
        return limited(x * 3)

    LIMITS["top"] = 1.0
    return fn, [(X,), (-X,), (X * 2,)]


@program
def test_an_operator_whose_helper_reads_a_global_that_was_written():
    def fn(x):
        global FACTOR
        FACTOR = FACTOR + 1.0
        return shifted(x)

    globals()["FACTOR"] = 1.0
    return fn, [(X,), (-X,), (X * 2,)]


def reads_environment(x):
    return x * float(os.getenv("BURNISH_TESTS_FACTOR", "1"))


def draws(x):
    return x * random.random()


def reads_attribute(x):
    return x * STATE.calls


def imports(x):
    import os as system

    return x * float(system.environ.get("BURNISH_TESTS_FACTOR", "1"))


def reads_module(x):
    module = sys
    return x * len(module.path)


def computes(x):
    with torch.no_grad():
        return torch.from_numpy(np.sin(x.numpy())) + functools.reduce(torch.add, [x, x]) + math.pi


@pytest.mark.parametrize("function", [reads_environment, draws, reads_attribute, imports, reads_module, computes])
def test_what_an_operator_may_read_after_a_write(function):
    operator = custom_op(f"burnish_tests::{function.__name__}", lambda x: function(x), mutates_args=(), schema=SCHEMA)
    operator.register_fake(torch.empty_like)
    state = State()

    def fn(x):
        state.calls += 1
        return operator(x) + 1

    reasons = burnish.explain(fn)(X).break_reasons
    assert [reason.source.kind.code for reason in reasons] == ([] if function is computes else ["B201"])


@program
def test_an_operator_of_a_library_after_a_write_is_a_break():
    """Torch does not tell which function implements it."""
    return counts(lambda x: torch.ops.burnish_tests_library.halved(x))()


@program(breaks=0)
def test_an_operator_of_a_library():
    def fn(x):
        return torch.ops.burnish_tests_library.halved(x.sin()) + 1

    return fn, [(X,), (-X,), (X * 2,)]


@program(breaks=0)
def test_an_operator_without_a_function_for_its_results():
    def fn(x):
        return unknown(x + 1) + 1

    return fn, [(X,), (-X,), (X * 2,)]


@program
def test_an_operator_without_a_function_for_its_results_sees_other_sizes():
    def fn(x):
        return unknown(x + 1) + 1

    return fn, [(torch.ones(n),) for n in (2, 3, 2, 5)]


@program
def test_errors_keep_their_type():
    def fn(x):
        try:
            return refuses(x + 1) * 2
        except LookupError as error:
            return str(error)

    return fn, [(-X * 9,), (X * 9,), (-X * 9,), (X * 9,)]


def test_the_operator_is_one_node_with_either_backend():
    for backend in ("eager", "burnish", lambda gm, inputs: gm.forward):
        burnish.reset()
        compiled = burnish.compile(lambda x: scaled(x.sin(), 3.0).cos(), backend=backend, fullgraph=True)
        for k in range(4):
            torch.testing.assert_close(compiled(X + k), (X + k).sin().mul(3.0).cos())


def test_vmap_of_an_operator():
    compiled = burnish.compile(lambda x: torch.vmap(lambda row: scaled(row, 2.0))(x) + 1, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(3, 2)), torch.full((3, 2), 3.0))


def gradient(function):
    x = X.clone().requires_grad_()
    function(x).sum().backward()
    return x.grad


@pytest.mark.falls_back("refused")  # without a formula there is nothing to compile for gradients
@pytest.mark.parametrize("never_slower", [True, False])
def test_registrations_are_seen_when_they_change(never_slower):
    @custom_op("burnish_tests::registered", mutates_args=())
    def registered(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    registered.register_fake(lambda x: torch.empty_like(x))

    def fn(x):
        return registered(x.sin()) + x

    with burnish.settings.patch(never_slower=never_slower):
        compiled = burnish.compile(fn, fullgraph=True)
        for _ in range(3):
            for function in (fn, compiled):
                with pytest.raises(RuntimeError, match="no autograd formula was registered"):
                    gradient(function)
        for factor in (2, 5):
            registered.register_autograd(lambda ctx, g, factor=factor: g * factor)
            for _ in range(3):
                torch.testing.assert_close(gradient(compiled), gradient(fn))
        registered.register_kernel("cpu")(lambda x: x * 2 + 1)
        for _ in range(3):
            torch.testing.assert_close(compiled(X), fn(X))


def test_operator_that_is_defined_again_is_another_operator():
    """As in a notebook. What torch knew of the first one is freed."""
    for factor in range(2, 12):

        @custom_op("burnish_tests::again", mutates_args=())
        def again(x: torch.Tensor, factor: int = factor) -> torch.Tensor:
            return x * factor

        again.register_fake(lambda x, factor=0: torch.empty_like(x))
        again.register_autograd(lambda ctx, g, factor=factor: (g * factor, None))

        def fn(x, again=again):
            return again(x.sin()).exp()

        with burnish.settings.patch(never_slower=False):
            compiled = burnish.compile(fn, fullgraph=True)
            for _ in range(2):
                torch.testing.assert_close(compiled(X), fn(X))
                torch.testing.assert_close(gradient(compiled), gradient(fn))
        gc.collect()


@pytest.mark.parametrize("never_slower", [True, False])
def test_what_a_formula_reads_is_seen_when_it_changes(never_slower, capsys):
    factor = 1.0

    @custom_op("burnish_tests::formula", mutates_args=())
    def formula(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    formula.register_fake(lambda x: torch.empty_like(x))
    formula.register_autograd(lambda ctx, g: g * factor)

    @custom_op("burnish_tests::printing", mutates_args=())
    def printing(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    printing.register_fake(lambda x: torch.empty_like(x))
    printing.register_autograd(lambda ctx, g: print("backward") or g * factor)

    def fn(x):
        return printing(formula(x.sin()).exp()).cos()

    with burnish.settings.patch(never_slower=never_slower):
        compiled = burnish.compile(fn, fullgraph=True)
        for value in (1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0):
            factor = value
            torch.testing.assert_close(gradient(compiled), gradient(fn))
            assert capsys.readouterr().out == "backward\nbackward\n"


def test_a_formula_of_an_operator_defined_again_still_prints(capsys):
    """Torch forgets the new registrations' names when the old library is collected."""

    def printing():
        @custom_op("burnish_tests::prints_again", mutates_args=())
        def operator(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        operator.register_fake(lambda x: torch.empty_like(x))
        operator.register_autograd(lambda ctx, g: print("backward") or g * 2)
        return operator

    operator = printing()
    operator = printing()
    gc.collect()
    compiled = burnish.compile(lambda x: operator(x.sin()).cos(), fullgraph=True)
    for _ in range(3):
        gradient(compiled)
        assert capsys.readouterr().out == "backward\n"


def test_results_that_are_arguments_are_refused_as_in_eager():
    @custom_op("burnish_tests::aliases", mutates_args=())
    def aliases(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1)

    aliases.register_fake(lambda x: torch.empty_like(x).view(-1))

    def fn(x):
        return aliases(x + 1)

    compiled = burnish.compile(fn)
    for function in (fn, compiled, compiled, compiled):
        with pytest.raises(RuntimeError, match="may not alias"):
            function(X)


KEPT = """
import sys
import torch
import burnish
from burnish import events

FACTOR = float(sys.argv[1])

@torch.library.custom_op("burnish_tests::kept", mutates_args=())
def kept(x: torch.Tensor) -> torch.Tensor:
    return x * 2

kept.register_fake(lambda x: torch.empty_like(x))
kept.register_autograd(lambda ctx, g: g * FACTOR)
seen = []
drop = events.subscribe(seen.append, ["cache.program"])
compiled = burnish.compile(lambda x: kept(x.sin()).cos(), fullgraph=True)
for _ in range(2):
    x = torch.ones(3, requires_grad=True)
    compiled(x).sum().backward()
print(len(seen), round(x.grad[0].item(), 4))
"""


def test_compiled_graphs_with_operators_are_kept_on_disk(tmp_path):
    """The key contains the formulas and what they read."""
    environment = {**os.environ, "BURNISH_CACHE_DIR": str(tmp_path), "BURNISH_CACHE": "1", "BURNISH_CHECK": "0"}

    def run(factor):
        count, value = run_program(KEPT, str(factor), environment=environment, prepare=TORCH).stdout.split()
        return int(count), float(value)

    expected = -torch.sin(2 * torch.tensor(1.0).sin()) * torch.tensor(1.0).cos()
    assert run(1.0) == (0, pytest.approx(expected.item(), abs=1e-3))
    assert run(1.0) == (1, pytest.approx(expected.item(), abs=1e-3))
    assert run(2.0) == (0, pytest.approx(2 * expected.item(), abs=1e-3))


def test_operator_is_not_run_to_learn_the_type_of_its_result(capsys):
    """It runs as often as in eager, also when it prints, and refuses the zeros of an example."""

    @torch.library.custom_op("custom_ops::says", mutates_args=())
    def says(x: torch.Tensor, factor: float = 2.0) -> list[torch.Tensor]:
        print("operator")
        if x.sum() == 0:
            raise ValueError("zeros")
        return [x * factor, x.t().sum(0)]

    says.register_fake(lambda x, factor=2.0: [torch.empty_like(x), x.new_empty(x.shape[0])])

    def fn(x, factor):
        y, z = says(x + 1, factor)
        return y * z

    compiled = burnish.compile(fn, fullgraph=True)
    for factor in (2.0, 2.0, 3.0):
        x = torch.rand(3, 3)
        torch.testing.assert_close(compiled(x, factor), ((x + 1) * factor) * (x + 1).t().sum(0))
        assert capsys.readouterr().out == "operator\n"
    assert burnish.was_compiled(compiled)


@custom_op("burnish_tests::grouped", mutates_args=())
def grouped(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    parts = x.tensor_split(ends.tolist()[:-1])
    return torch.cat([part @ weight for part, weight in zip(parts, weights, strict=True)])


@grouped.register_fake
def _(x, weights, ends):
    return x.new_empty(x.shape[0], weights.shape[-1])


def grouped_backward(ctx, gradient):
    x, weights, ends = ctx.saved_tensors
    places = ends.tolist()[:-1]
    parts, gradients = x.tensor_split(places), gradient.tensor_split(places)
    of_x = torch.cat([g @ w.t() for g, w in zip(gradients, weights, strict=True)])
    return of_x, torch.stack([part.t() @ g for part, g in zip(parts, gradients, strict=True)]), None


grouped.register_autograd(grouped_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


@pytest.mark.parametrize("trains_inside", (True, False))
def test_formula_that_looks_at_data_leaves_the_rest_compiled(trains_inside):
    """Mixtures of experts read how many tokens each expert gets."""

    def experts(x, weights, scores):
        chosen = scores.argmax(-1)
        order = chosen.argsort(stable=True)
        ends = (chosen[:, None] == torch.arange(len(weights))).sum(0).cumsum(0)
        return grouped(x[order] * 2, weights, ends).sin().sum()

    def train(x, weights, scores):
        loss = experts(x, weights, scores)
        loss.backward()
        return loss

    compiled = burnish.compile(train if trains_inside else experts)
    with recorded("lower.refused", datum="text") as refused, burnish.settings.patch(never_slower=False):
        for seed in range(4):
            torch.manual_seed(seed)
            given = [torch.randn(10, 8), torch.randn(4, 8, 8), torch.randn(10, 4)]
            losses, gradients = [], []
            for function in (train, compiled):
                x, weights = given[0].clone().requires_grad_(), given[1].clone().requires_grad_()
                losses.append(function(x, weights, given[2]))
                if function is compiled and not trains_inside:
                    losses[-1].backward()
                gradients.append((x.grad, weights.grad))
            torch.testing.assert_close(*losses)
            torch.testing.assert_close(*gradients)
    assert refused == []
    assert burnish.was_compiled(compiled)
