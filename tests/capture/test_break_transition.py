"""Transitions at graph breaks without rebuilt frames give the interpreter's results."""

import dis
import gc
import weakref

import pytest
import torch

import burnish
from burnish.capture.segments.break_transitions import BreakTransition


def transitions(compiled):
    program = compiled.__burnish_program__
    return [
        segment.leads_to.transition
        for point in [program.entry, *program.continuations.values()]
        for segment in point.segments
        if segment.leads_to is not None
    ]


def branch(x, log):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def either(x, log):
    return (x * 2).sum() > 0 and x + 1


def call(x, log):
    y = x * 2
    log.append(burnish.graph_break())
    return y.sin()


@burnish.disable
def scaled(x, by=1, *, plus=0):
    return x * by + plus


def named_arguments(x, log):
    return scaled(x + 1, 2, plus=3) * 2


def spread_arguments(x, log):
    return scaled(x + 1, *(2,), **{"plus": 3}) * 2


def read(x, log):
    y = (x * 2).relu()
    return y / (y.max().item() + 1)


def values(x, log):
    total = x * 0
    for value in (x * 2).tolist():
        total = total + value
    return total


def loop(x, log):
    for part in map(scaled, [x, x + 1, x + 2]):
        log.append(burnish.graph_break())
        x = x + part
    return x


def nested(x, log):
    def inner(y):
        z = y * 2
        if z.mean() > 1:
            return z + 1
        return z

    return inner(x) + inner(x - 1)


def while_loop(x, log):
    while x.sum() < 10:
        x = x + 1
    return x


PROGRAMS = (branch, either, call, named_arguments, spread_arguments, read, values, loop, nested, while_loop)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_programs_give_eagers_results(fn):
    compiled = burnish.compile(fn, backend="eager")
    for turn in range(5):
        for x in (torch.ones(2), -torch.ones(2), torch.full((2,), turn / 2)):
            mine, theirs = [], []
            found, wanted = compiled(x, mine), fn(x, theirs)
            assert mine == theirs and type(found) is type(wanted)
            assert torch.equal(torch.as_tensor(found), torch.as_tensor(wanted))
    has_simple = any(isinstance(transition, BreakTransition) for transition in transitions(compiled))
    # The operands of one are inside of others, and two have no break. Since Python 3.13 names are an operand.
    by_name = () if "KW_NAMES" in dis.opmap else (named_arguments,)
    assert has_simple == (fn not in (spread_arguments, read, values, *by_name))


def test_errors_of_called_functions_are_raised_in_the_program():
    @burnish.disable
    def check(value):
        if value < 0:
            raise ValueError("below zero")
        return value

    def fn(x, log):
        y = x * 2
        try:
            z = check(y.sum().item())
        except ValueError as error:
            log.append(str(error))
            z = 0
        finally:
            log.append("checked")
        return y + z

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        for sign in (1, -1):
            mine, theirs, x = [], [], torch.ones(2) * sign
            assert torch.equal(compiled(x, mine), fn(x, theirs))
            assert mine == theirs


def test_errors_that_leave_have_the_programs_lines():
    @burnish.disable
    def check(value):
        raise ValueError("it fails")

    def fn(x):
        y = x * 2
        check(y)
        return y + 1

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        with pytest.raises(ValueError, match="it fails") as caught:
            compiled(torch.ones(2))
        names = [entry.name for entry in caught.traceback]
        assert names[-2:] == ["fn", "check"]
        assert caught.traceback[-2].lineno + 1 == fn.__code__.co_firstlineno + 2


def test_dropped_objects_are_freed_when_eager_frees_them():
    class Held:
        pass

    gone = []

    @burnish.disable
    def note():
        gone.append(reference() is None)

    reference = None

    def fn(x):
        nonlocal reference
        held = make()
        y = x * 2
        note()
        del held
        note()
        return y + 1

    @burnish.disable
    def make():
        nonlocal reference
        held = Held()
        reference = weakref.ref(held)
        return held

    compiled = burnish.compile(fn, backend="eager")
    gc.collect()
    gc.disable()
    try:
        for each in (fn, compiled, compiled, compiled):
            gone.clear()
            each(torch.ones(2))
            assert gone == [False, True]
    finally:
        gc.enable()


def test_a_list_that_is_built_over_a_break_becomes_a_tuple():
    @burnish.disable
    def first(values):
        return values[0]

    def fn(x, values):
        found = (first(values),)
        return *found, first(values), x + 1

    compiled = burnish.compile(fn, backend="eager")
    for value in (1, 2, 2, 3, 1):
        assert compiled(torch.ones(2), [value])[:2] == (value, value)
