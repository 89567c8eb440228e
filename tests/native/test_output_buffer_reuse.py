"""Intermediates that reuse an output's buffer before it is written: results are eager's in every call."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import burnish
from burnish import events
from burnish.schedule.plan_steps import Call
from burnish.settings import patch

from ..runtime.concurrent_threads import at_once

SIDE = 256
WHOLE = SIDE * SIDE * 4


def steps(x, count=4):
    """None can be fused with the next, nor reuse the previous buffer: each reads all of it, at other indices."""
    for step in range(count):
        x = torch.softmax(x.flip(1) * 2, step % 2)
    return x


class Mixed(torch.nn.Module):
    """Products between them, and views of a part that another product reads."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = torch.nn.Linear(SIDE, 3 * SIDE), torch.nn.Linear(SIDE, SIDE)
        self.last = torch.nn.Linear(SIDE, 16 * SIDE)

    def forward(self, x):
        for _ in range(2):
            a, b, c = self.wide(x).split(SIDE, 1)
            x = self.narrow(torch.softmax(a, 1) + b.t() * c)
        return self.last(x)


PROGRAMS = {
    "one output": steps,
    "a view of it": lambda x: steps(x).t(),
    "parts of it": lambda x: steps(x).split(SIDE // 2),
    "another kind of number": lambda x: steps(x).to(torch.float64),
    "it, and a view of it": lambda x: ((y := steps(x)), y[1:]),
    "it and what it is made of": lambda x: ((y := steps(x, 3)), steps(y, 3)),
    "two, one after the other": lambda x: ((y := steps(x)).sum(), steps(y) + 1, steps(y)),
    "one without elements": lambda x: (x[:0] * 2, steps(x)),
    "beside what is written to the input": lambda x: (x.mul_(2), steps(x)),
    "an input and a view of it beside": lambda x: (x, steps(x), x.t()),
    "larger than all before": lambda x: F.pad(steps(x), (1, 1, 1, 1)),
    "with gaps in the views": lambda x: steps(steps(x)[:, ::2].repeat_interleave(2, 1)),
    "a product at the end": lambda x: steps(x) @ x,
}


def tensors(result):
    return result if isinstance(result, tuple) else (result,)


def compiled(fn):
    """The compiled function, and the plans that are made for it, as soon as it is called."""
    plans = []
    stop = events.subscribe(lambda event: event.kind == "loops" and plans.append(event.data["plan"]))
    return burnish.compile(fn), plans, stop


def test_products_read_and_write_there(own_kernels_only):
    model = Mixed()
    made, plans, stop = compiled(model)
    with torch.no_grad():
        inputs = [torch.randn(SIDE, SIDE) for _ in range(4)]
        found = [made(x) for x in inputs]
        stop()
        assert {value.name for plan in plans for value in plan.in_output_buffer} >= {"run"}
        torch.testing.assert_close(found, [model(x) for x in inputs])


def test_buffer_that_a_convolution_has_copied_is_reused_for_its_result(own_kernels_only):
    """Windows that reach over the edge read a copy. When the result is written, the image is dead."""
    model = torch.nn.Sequential(*[torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(4)]).eval()
    made, plans, stop = compiled(model)
    with torch.no_grad():
        inputs = [torch.randn(2, 16, 40, 40) for _ in range(4)]
        found = [made(x) for x in inputs]
        stop()
        image, copy = 2 * 16 * 40 * 40 * 4, 2 * 16 * 42 * 42 * 4
        assert plans[-1].arena == image + copy
        torch.testing.assert_close(found, [model(x) for x in inputs])


@pytest.fixture
def librarys_kernels_only(monkeypatch):
    """Python calls every product, with tensors for the memory that it reads and writes."""
    from burnish.schedule.library import choose_calls
    from burnish.schedule.library.autotune_library_calls import candidates

    def choose(spec, **_):
        candidate = replace(next(c for c in candidates(spec) if c.run_into is not None and not c.prepare), steps=None)
        return choose_calls.Choice(candidate, 1e-9, {candidate.name: 1e-9})

    monkeypatch.setattr(choose_calls, "choose", choose)


def test_products_that_python_calls_do_too(librarys_kernels_only):
    def fn(x):
        for _ in range(3):
            x = torch.softmax(x @ x.t(), 1)
        return steps(x, 2)

    made, plans, stop = compiled(fn)
    with torch.no_grad():
        inputs = [torch.randn(SIDE, SIDE) for _ in range(4)]
        found = [made(x) for x in inputs]
        stop()
        called = {value for step in plans[0].steps if isinstance(step, Call) for value in step.node.results}
        assert called & plans[0].in_output_buffer.keys()
        torch.testing.assert_close(found, [fn(x) for x in inputs])


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_eagers_and_stay_so(name, librarys_kernels_only):
    fn = PROGRAMS[name]
    made, plans, stop = compiled(fn)
    inputs = [torch.randn(SIDE, SIDE) for _ in range(4)]
    with torch.no_grad():
        after = [x.clone() for x in inputs]
        expected = [fn(x) for x in after]
        given = [x.clone() for x in inputs]
        found = [made(x) for x in given]  # held side by side, as is what was written
    stop()
    assert any(plan.in_output_buffer for plan in plans)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(given, after)
    for x, result, wanted in zip(given, found, expected, strict=True):
        assert [r.stride() for r in tensors(result)] == [r.stride() for r in tensors(wanted)]
        is_shared = [r.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for r in tensors(result)]
        assert is_shared == [r.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for r in tensors(fn(x))]


def test_less_is_needed_than_two_at_once_and_the_output():
    made, plans, stop = compiled(steps)
    with torch.no_grad():
        made(torch.randn(SIDE, SIDE))
    stop()
    (plan,) = plans
    assert WHOLE < plan.arena < 1.1 * WHOLE  # the output is the other of the two


def test_threads_have_memory_of_their_own():
    made, plans, stop = compiled(steps)
    inputs = [torch.randn(SIDE, SIDE) for _ in range(4)]
    wrong = []

    def work(x):
        with torch.no_grad():
            expected = steps(x)
            for _ in range(20):
                if not torch.allclose(made(x), expected):
                    wrong.append(x)

    with torch.no_grad():
        made(inputs[0])
    at_once(*(partial(work, x) for x in inputs))
    stop()
    assert plans[0].in_output_buffer and not wrong


def test_a_program_from_disk_does_the_same(tmp_path):
    x = torch.randn(SIDE, SIDE)
    with torch.no_grad(), patch(cache=True, cache_dir=tmp_path):
        expected = steps(x)
        for is_kept in (False, True):
            burnish.reset()
            made, plans, stop = compiled(steps)
            found = [made(x) for _ in range(3)]
            stop()
            assert is_kept or plans[0].in_output_buffer
            assert bool(plans) != is_kept
            torch.testing.assert_close(found, [expected] * 3)


def test_training_steps_are_eagers():
    model, x = Mixed(), torch.randn(SIDE, SIDE, requires_grad=True)

    def loss(x):
        return (steps(model(steps(x))[:, :SIDE]) * x).sum()

    made, plans, stop = compiled(loss)
    found = []
    for fn in (loss, made, made):
        torch.autograd.backward(fn(x))
        found.append([x.grad, *(p.grad for p in model.parameters())])
        x.grad = None
        model.zero_grad(set_to_none=True)
    stop()
    assert len(plans) >= 2
    torch.testing.assert_close(found[1:], [found[0]] * 2)


def test_with_symbolic_sizes_no_output_buffer_is_reused():
    made, plans, stop = compiled(steps)
    with torch.no_grad():
        for rows in (SIDE, SIDE + 8, SIDE + 16, SIDE + 24):
            x = torch.randn(rows, SIDE)
            torch.testing.assert_close(made(x), steps(x))
    stop()
    assert len(plans) > 1


def test_library_concatenations_are_in_the_arena():
    """Between our own products, in the memory of dead values; a returned result is the library's own."""

    def fn(x):
        for _ in range(3):
            joined = torch.cat([x @ x.t(), x @ x], 1)
            x = torch.softmax(joined @ joined.t(), 1)
        return x, torch.cat([x, x], 1)

    made, plans, stop = compiled(fn)
    with torch.no_grad():
        inputs = [torch.randn(SIDE, SIDE) for _ in range(3)]
        found = [made(x) for x in inputs]
        stop()
        torch.testing.assert_close(found, [fn(x) for x in inputs])
    called = [
        step.node.results[0]
        for step in plans[0].steps
        if isinstance(step, Call) and step.node.op.name == "aten.cat.default"
    ]
    inside = {*plans[0].offsets, *plans[0].in_output_buffer}
    assert len(called) == 4 and set(called[:3]) <= inside and called[3] not in inside
