"""Writes to inputs that gradients flow through: values, gradients, histories, and shared memory afterwards."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish.compiler.adapters import write_back_inputs
from burnish.settings import patch

from ..recorded_events import recorded
from ..seeding import seed
from .test_mutation import ON_INPUTS


def facts(tensor):
    return tensor.requires_grad, tensor.is_leaf, tensor._is_view(), tensor.stride(), tensor.dtype


def outcome(fn, shown, number):
    """Results, inputs and gradients of a call with inputs that are results of other code, and the error's text."""
    seed(number)
    leaves = [torch.randn(4, 6, requires_grad=True) for _ in range(2)]
    given = [leaf * 1.5 for leaf in leaves]
    inputs = [shown(x) for x in given]
    try:
        made = fn(*inputs)
        made = [x for x in (made if isinstance(made, tuple) else (made,)) if isinstance(x, torch.Tensor)]
        loss = sum((x * (k + 1)).sum() for k, x in enumerate([*made, *given, *inputs]) if x.requires_grad)
        loss.backward()
    except RuntimeError as error:
        return [], [], str(error).partition("[")[0]
    memory = [[x.data_ptr() == y.data_ptr() for y in inputs] for x in made]
    return [*made, *given, *[x.grad for x in leaves]], [*map(facts, [*made, *given, *inputs]), memory], ""


def equal_outcomes(fn, shown=lambda x: x, calls=3):
    """Why the graph ran eagerly, if it did."""
    with recorded("lower.refused", datum="text") as refused, patch(never_slower=False):
        compiled = burnish.compile(fn)
        for number in range(calls):
            wanted, facts_wanted, why = outcome(fn, shown, number)
            found, facts_found, text = outcome(compiled, shown, number)
            assert text == why and facts_found == facts_wanted
            for a, b in zip(found, wanted, strict=True):
                torch.testing.assert_close(a, b)
    return refused


FAILS_IN_EAGER = {
    "twice",
    "out= of a factory",
    "a function of two orders",
    "bits are shifted",
    "windows are read after",
    "through strides",
    "copied from itself",
    "out= of an input",
    "out= of a view",
    "out= of both",
}
"""Programs that autograd refuses, or that differentiate with values that are written later."""


@pytest.mark.parametrize("name", ON_INPUTS)
@pytest.mark.falls_back("refused")
def test_writes_to_results_of_other_code(name):
    refused = equal_outcomes(ON_INPUTS[name])
    assert not refused or name in FAILS_IN_EAGER, refused


SHOWN = {
    "the whole": lambda x: x,
    "rows": lambda x: x[1:3],
    "another shape": lambda x: x.view(6, 4),
    "transposed": lambda x: x.t(),
}
WRITES = {
    "returns the input": lambda x, y: x.mul_(2),
    "returns views": lambda x, y: (x[1], x.mul_(2).t(), x.detach(), x.view(-1)[2:5] if x.is_contiguous() else x[0]),
    "returns copies": lambda x, y: (x.mul_(2).clone(), x + 0),
    "reads the old value": lambda x, y: (x.exp(), x.mul_(y.cos()))[0] * x,
    "both inputs": lambda x, y: (x.add_(y), y.copy_(x * 2), x.sum() * y.mean())[2],
    "under no_grad": lambda x, y: (x * 2, without_gradients(x), x + y),
    "of a function": lambda x, y: F.relu(x, inplace=True).sin(),
    "a hook": lambda x, y: (x.register_hook(lambda g: g * 2), x.mul_(2), x.sin())[2],
}


@torch.no_grad()
def without_gradients(x):
    x.zero_()


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_views_of_results(name, shown):
    equal_outcomes(WRITES[name], SHOWN[shown])


@pytest.mark.falls_back("refused")
def test_inputs_with_gaps_run_eagerly():
    refused = equal_outcomes(lambda x, y: x.tanh_() * y, lambda x: x[:, 1:4])
    assert len(refused) == 1 and "tanh_" in refused[0]


def test_an_overlapping_input_sees_the_write():
    compiled = burnish.compile(lambda x, y: x.mul_(2).sum(0) * y.sum(0), options={"never_slower": False})
    for number, is_shared in enumerate((False, False, True, False)):
        seed(number)
        found = []
        for run in (compiled.__wrapped__, compiled):
            leaf = torch.arange(16.0).reshape(4, 4).requires_grad_()
            h, other = leaf * 1, leaf * 3
            out = run(h[:2], (h if is_shared else other)[1:3])
            out.sum().backward()
            found.append((out, h, leaf.grad))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b)


def test_a_buffer_gets_a_history():
    model = nn.Linear(4, 4)

    def step(x, buffer):
        buffer.mul_(0.5).add_(model(x))
        return buffer.tanh()

    compiled = burnish.compile(step, fullgraph=True, options={"never_slower": False})
    for number in range(3):
        found = []
        for run in (step, compiled):
            seed(number)
            model.zero_grad()
            buffer, total = torch.zeros(3, 4), 0
            for _ in range(3):
                total = total + run(torch.randn(3, 4), buffer).sum()
            assert buffer.requires_grad and not buffer.is_leaf and buffer.grad_fn is not None
            total.backward()
            found.append((total, buffer, model.weight.grad))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b)


def test_writes_are_seen_by_backward_outside():
    """A value that other code has saved was overwritten: an error, as in eager."""
    compiled = burnish.compile(lambda x: x.mul_(2).sin(), options={"never_slower": False})
    for _ in range(3):
        h = torch.ones(3, requires_grad=True) * 1
        before = h.sin()
        compiled(h)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            before.sum().backward()


def test_all_sizes():
    with recorded("traced") as traced:
        weight = torch.randn(4, 4, requires_grad=True)

        def step(x, cache):
            cache.add_(x @ weight)
            return cache.sum(1)

        compiled = burnish.compile(step, fullgraph=True, options={"never_slower": False})
        for size in (3, 5, 6, 9):
            found = []
            for run in (step, compiled):
                seed(size)
                x, cache = torch.randn(2, size, 4, requires_grad=True), torch.zeros(2, size, 4)
                weight.grad = None
                out = run(x, cache)
                out.square().sum().backward()
                found.append((out, cache, x.grad, weight.grad))
            for a, b in zip(*found, strict=True):
                torch.testing.assert_close(a, b)
    assert len(traced) == 2


PARTS = {"number": lambda y, k: y[k:], "data": lambda y, k: y[torch.tensor(k)], "size": lambda y, k: y[-2:]}


@pytest.mark.falls_back("refused", "sizes", "numbers", only=".*-data")
@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("dynamic", [True, None])
def test_a_result_shows_the_part_of_this_call(name, dynamic):
    def fn(x, y, k):
        v = PARTS[name](y, k)
        v.add_(1)
        y[0] = x[0]
        return v, y

    compiled = burnish.compile(fn, dynamic=dynamic, options={"never_slower": False})
    for rows, k in ((10, 3), (10, 3), (10, 4), (11, 5), (11, 6), (11, 3), (12, 8)):
        found = []
        for run in (fn, compiled):
            x = torch.ones(rows, 4, requires_grad=True)
            v, y = run(x, torch.arange(rows * 4.0).view(rows, 4), k)
            (v.square().sum() + y.sum()).backward()
            found.append((v, y, x.grad))
            assert v.data_ptr() - y.data_ptr() == 4 * v.storage_offset() > 0
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b)


def test_an_error_after_the_write_runs_nothing_again(monkeypatch):
    def fn(x, y):
        y.add_(x)
        return y[1:]

    def refused(*given):
        raise RuntimeError("no such view")

    compiled = burnish.compile(fn, options={"never_slower": False})
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        compiled(x, torch.zeros(3))
    y = torch.zeros(3)
    monkeypatch.setattr(write_back_inputs, "view_of", refused)
    with pytest.raises(RuntimeError, match="no such view"):
        compiled(x, y)
    assert y.tolist() == [1, 1, 1]


def test_second_gradients_after_a_write_raise():
    compiled = burnish.compile(lambda x: x.mul_(2).sin(), options={"never_slower": False})
    for call in range(2):
        leaf = torch.ones(3, requires_grad=True)
        out = compiled(leaf * 1)
        if call:
            with pytest.raises(RuntimeError, match="writes to its inputs"):
                torch.autograd.grad(out.sum(), leaf, create_graph=True)
