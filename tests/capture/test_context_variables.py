"""``contextvars``: values are read and guarded; setting one is a break."""

import contextvars

import pytest
import torch

import burnish

from ..recorded_events import recorded
from .harness import program

scale = contextvars.ContextVar("scale", default=2)
unset = contextvars.ContextVar("unset")
options = contextvars.ContextVar("options", default=None)


@pytest.fixture(autouse=True)
def one_context_per_test():
    before = [(variable, variable.set(1)) for variable in (scale, unset, options)]
    for variable, token in before:
        variable.reset(token)
    yield
    for variable in (scale, options):
        variable.set({scale: 2, options: None}[variable])


def in_contexts(fn, *values):
    """A function that runs in a context of its own in each call, with the next of these values."""
    left = list(values)

    def run(*args):
        context = contextvars.copy_context()
        for variable, value in left.pop(0).items():
            context.run(variable.set, value)
        return context.run(fn, *args)

    return run


def compared(fn, *values):
    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    eager, found = in_contexts(fn, *values), in_contexts(compiled, *values)
    for _ in values:
        torch.testing.assert_close(found(torch.ones(2)), eager(torch.ones(2)), rtol=0, atol=0)


def test_each_context_has_its_own_value():
    compared(lambda x: x * scale.get() + scale.get(), {}, {}, {scale: 3}, {scale: 3.5}, {scale: 4}, {})


def test_a_value_is_read_through():
    def fn(x):
        held = options.get()
        return x if held is None else x * held["factor"] + held["shift"]

    given = [{}, {options: {"factor": 2, "shift": torch.ones(2)}}, {options: {"factor": 2, "shift": -torch.ones(2)}}]
    compared(fn, *given, *given)


def test_defaults_of_the_call_and_of_the_variable():
    compared(lambda x: x * unset.get(5) + scale.get(7), {}, {}, {unset: 3}, {scale: 1}, {})


def test_a_variable_without_a_value():
    def fn(x):
        try:
            return x * unset.get()
        except LookupError:
            return -x

    compared(fn, {}, {}, {unset: 3}, {})


def test_a_changing_number_is_open():
    compiled = burnish.compile(lambda x: x * scale.get(), backend="eager", fullgraph=True)
    with recorded("traced") as traced:
        run = in_contexts(compiled, *({scale: n / 2} for n in range(2, 12)))
        found = [run(torch.ones(1)).item() for _ in range(10)]
    assert found == [n / 2 for n in range(2, 12)] and len(traced) <= 3


@program
def test_setting_and_resetting():
    def fn(x):
        token = scale.set(scale.get() + 1)
        try:
            return x * scale.get()
        finally:
            scale.reset(token)

    return fn, [(torch.ones(2),)] * 4, lambda: scale.get()


@program
def test_what_was_set_is_seen_by_the_next_call():
    def fn(x):
        before = scale.get()
        scale.set(before + 1)
        return x * before + scale.get()

    def reset(x):
        scale.set(2)
        return [fn(x) for _ in range(4)]

    return reset, [(torch.ones(2),)] * 3
