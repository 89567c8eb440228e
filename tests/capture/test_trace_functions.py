"""Trace and profile functions (`sys.settrace`, `sys.setprofile`) see the program's frames, not Burnish's."""

import sys
import trace

import pytest
import torch

import burnish
from burnish.frontend import stance


def callee(x):
    y = x + 1
    return y * 2


def traced(x):
    seen = []

    def note(frame, event, argument):
        seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return note

    sys.settrace(note)
    try:
        y = callee(x)
    finally:
        sys.settrace(None)
    return y, seen


def profiled(x):
    seen = []
    sys.setprofile(lambda frame, event, argument: seen.append((event, frame.f_code.co_name)))
    try:
        y = callee(x)
    finally:
        sys.setprofile(None)
    return y, seen


def imported(x):
    from sys import setprofile

    seen = []
    setprofile(lambda frame, event, argument: seen.append((event, frame.f_code.co_name)))
    try:
        y = callee(x)
    finally:
        setprofile(None)
    return y, seen


def named(x):
    module, seen = sys, []
    module.setprofile(lambda frame, event, argument: seen.append((event, frame.f_code.co_name)))
    try:
        y = callee(x)
    finally:
        module.setprofile(None)
    return y, seen


class Holder:
    module = sys


def held(x):
    seen = []
    Holder.module.setprofile(lambda frame, event, argument: seen.append((event, frame.f_code.co_name)))
    try:
        y = callee(x)
    finally:
        Holder.module.setprofile(None)
    return y, seen


def counted(x):
    counter = trace.Trace(count=1, trace=0)
    return counter.runfunc(callee, x), sorted(counter.results().counts.items())


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("sets", [traced, profiled, imported, named, held, counted])
@pytest.mark.parametrize("is_nested", [False, True])
def test_program_that_sets_a_trace_function(sets, is_nested):
    def around(x):
        return sets(x)

    fn = around if is_nested else sets
    compiled, (_, expected) = burnish.compile(fn, backend="eager"), fn(torch.ones(2))
    for _ in range(3):
        result, seen = compiled(torch.ones(2))
        assert torch.equal(result, torch.full((2,), 4.0)) and seen == expected


def test_one_graph_cannot_set_a_trace_function():
    with pytest.raises(burnish.Unsupported, match="observes the interpreter"):
        burnish.compile(traced, backend="eager", fullgraph=True)(torch.ones(2))


def test_trace_function_around_the_call_sees_each_line():
    compiled, seen = burnish.compile(callee, backend="eager"), []
    compiled(torch.ones(2))

    def note(frame, event, argument):
        if frame.f_code is callee.__code__:
            seen.append((event, frame.f_lineno - callee.__code__.co_firstlineno))
            return note
        return None

    stance.warn_of_trace_function.cache_clear()
    with pytest.warns(UserWarning, match="run eagerly while a trace function is set") as warned:
        sys.settrace(note)
        try:
            compiled(torch.ones(2))
            compiled(torch.ones(2))
        finally:
            sys.settrace(None)
    assert seen == [("call", 0), ("line", 1), ("line", 2), ("return", 2)] * 2
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.parametrize("breaks_before", [False, True])
def test_trace_function_that_a_callee_sets_sees_the_functions_called_after_it(breaks_before):
    def note(frame, event, argument):
        if frame.f_code in (inner.__code__, fn.__code__):
            seen.append((frame.f_code.co_name, event, frame.f_lineno - frame.f_code.co_firstlineno))
        return note

    def inner(x):
        return x + 2

    def begin():
        sys.settrace(note)

    def fn(x):
        y = inner(x + 1)
        if breaks_before and y.sum() < 0:
            y = -y
        begin()
        y = inner(y)
        if y.sum() < 0:
            y = -y
        y = inner(y) * 2
        sys_settrace(None)
        return inner(y)

    sys_settrace, seen = sys.settrace, []
    compiled, log = burnish.compile(fn, backend="eager"), []
    for run in (fn, *[compiled] * 4):
        seen.clear()
        try:
            assert torch.equal(run(torch.ones(2)), torch.full((2,), 18.0))
        finally:
            sys.settrace(None)
        log.append(list(seen))
    assert log == [[("inner", "call", 0), ("inner", "line", 1), ("inner", "return", 1)] * 2] * 5


def test_profile_function_that_a_callee_sets_sees_the_functions_called_after_it():
    def note(frame, event, argument):
        if event == "call" and frame.f_code in (inner.__code__, outer.__code__):
            seen.append(frame.f_code.co_name)

    def inner(x):
        return x + 2

    def outer(x):
        return inner(x)

    def begin():
        sys.setprofile(note)

    def fn(x):
        y = inner(x + 1)
        begin()
        y = outer(y)
        if y.sum() < 0:
            y = -y
        return inner(y)

    compiled, seen = burnish.compile(fn, backend="eager"), []
    for _ in range(4):
        seen.clear()
        try:
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 8.0))
        finally:
            sys.setprofile(None)
        assert seen == ["outer", "inner", "inner"]


def test_profile_function_around_the_call_changes_nothing():
    def fn(x):
        y = x + 1
        sys.stderr.write("")
        return callee(y)

    compiled = burnish.compile(fn, backend="eager")
    sys.setprofile(lambda frame, event, argument: None)
    try:
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 6.0))
            assert burnish.was_compiled(compiled)
    finally:
        sys.setprofile(None)


class Quiet(torch.nn.Module):
    monitoring = False

    def settrace(self, x):
        return x + 1

    def forward(self, x):
        if self.monitoring:
            sys.stderr.write("text")
        return quiet.settrace(x) * 2


quiet = Quiet()


def test_names_of_observers_that_are_other_things():
    compiled = burnish.compile(quiet, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert burnish.was_compiled(compiled)


def test_trace_function_sees_no_frames_that_repeat_those_of_the_program():
    def note(frame, event, argument):
        seen.append(frame.f_code.co_name)

    def fn(x):
        y = x + 1
        begin(note)
        begin(None)
        return y * 2

    seen: list = []
    begin = sys.settrace
    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
    assert "fn" not in seen
