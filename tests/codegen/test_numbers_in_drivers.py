"""What a driver does for the numbers of a step: Python's expressions, and no call of torch for each parameter."""

import builtins
import math
import operator
import re

import pytest
import torch

import burnish
from burnish.codegen.driver.driver_source import DriverText
from burnish.codegen.driver.number_expressions import number_expression
from burnish.settings import patch

from ..recorded_events import recorded

OPTIMIZERS = {"Adam": {}, "AdamW": {"foreach": True}, "NAdam": {}, "RAdam": {}, "Adagrad": {"lr_decay": 0.1}}


def training_step(kind, options, count=3):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(count)])
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **options)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, model, optimizer


def state_of(model, optimizer):
    return [*model.parameters(), *(x for state in optimizer.state.values() for x in state.values())]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_calls_torch_for_no_count_of_an_optimizer(kind):
    options = OPTIMIZERS[kind]
    eager, *eager_state = training_step(kind, options)
    step, *state = training_step(kind, options)
    x = torch.randn(2, 4)
    with patch(never_slower=False, on_error="raise"), recorded("kernels.driver", datum="text") as drivers:
        compiled = burnish.compile(step)
        for _ in range(8):
            eager(x)
            compiled(x)
    last = [text for text in drivers if "launch" in text][-1]
    assert not re.search(r"\.copy_\(|\.item\(\)|empty_cpu\(\(\), \(\), float32\)\n.*add", last), last
    assert len(re.findall(r"launch_0\w*\(", last)) == 2 + (kind == "NAdam"), (
        "the counts, its products, and all that follows"
    )
    for want, found in zip(state_of(*eager_state), state_of(*state), strict=True):
        torch.testing.assert_close(found, want)
    counts = [entry["step"] for entry in state[1].state.values()]
    assert all(count.item() == 8 and count._version > 0 for count in counts)


def test_counts_stay_as_they_were_where_a_formula_of_them_raises():
    def step(first, second, out):
        first.add_(1)
        second.add_(1)
        out.mul_(1 / (first.item() - 3) + second.item())

    found, want = ([torch.zeros(()), torch.ones(()), torch.full((4,), 2.0)] for _ in range(2))
    with patch(never_slower=False, on_error="raise"), recorded("kernels.driver", datum="text") as drivers:
        compiled = burnish.compile(step)
        for count in range(1, 6):
            for run, tensors in ((step, want), (compiled, found)):
                if count == 3:
                    with pytest.raises(ZeroDivisionError):
                        run(*tensors)
                else:
                    run(*tensors)
            for x, y in zip(found, want, strict=True):
                assert torch.equal(x, y), count
    assert any("element_" in text for text in drivers), "the numbers are read from the kernel's results"


def test_exchanged_elements_are_each_read_before_any_is_written():
    def exchange(a, b, c, d):
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)
        c.add_(a)
        d.copy_(c * 2)
        return 1 / (d.item() + 100)

    found, want = ([torch.tensor(float(k)) for k in range(4)] for _ in range(2))
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(exchange)
        for _ in range(4):
            assert compiled(*found) == exchange(*want)
            assert found == want


EXPRESSIONS = {
    "operator.pow": (-1, "item"),
    "operator.neg": (-3,),
    "operator.sub": ("item", -2),
    "operator.truediv": (-7, "item"),
    "operator.floordiv": ("item", 2),
    "operator.mod": (-7, "item"),
    "operator.invert": (5,),
    "operator.and_": ("item", -4),
    "operator.abs": (-4,),
    "math.pow": ("item", 3),
    "builtins.min": ("item", -3),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_computes_what_its_function_does(name):
    text = DriverText()
    operands = EXPRESSIONS[name]
    written = number_expression(text, name, [str(operand) for operand in operands])
    module, _, function = name.partition(".")
    run = getattr({"operator": operator, "math": math, "builtins": builtins}[module], function)
    for item in (1, 3, 6):
        values = [item if operand == "item" else operand for operand in operands]
        found = eval(written, {**text.things, "item": item})
        assert found == run(*values) and type(found) is type(run(*values))


def read_between_writes(a, b, c):
    b.copy_(a)
    n = (c + 1).item()
    b.sub_(int(a.abs()))
    c.fill_(n)


def computed_between_writes(a, b, c):
    b.copy_(a.expand(1, 1))
    c.add_(int(b.sum() * 2))
    b.fill_((c + 1).sum().item())


@pytest.mark.parametrize("fn", [read_between_writes, computed_between_writes])
def test_a_number_too_large_for_a_kernel_raises_before_the_first_write(fn):
    with patch(never_slower=False), recorded("graph.failed", datum="text") as failed:
        compiled = burnish.compile(fn)
        for value in (1.0, 2.0, 1e30):
            want, found = (outcome(each, value) for each in (fn, compiled))
            assert found == want
            assert burnish.was_compiled(compiled) == (value < 3)
    assert failed == ["OverflowError: int too big to convert; run again as plain Python"]


def outcome(fn, value):
    """What a call raises, and what it has written."""
    a, b, c = torch.tensor(value), torch.ones(1, 1), torch.full((1, 1), 0.5, dtype=torch.float16)
    try:
        fn(a, b, c)
    except OverflowError as error:
        return str(error), str(b), str(c)
    return str(b), str(c)
