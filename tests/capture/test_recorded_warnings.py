"""What receives the warnings of a segment: ``catch_warnings(record=True)``, ``sys.stderr`` or a function.

Each run of a segment gives its warnings at its end. What the program reads before must be as in eager code.
"""

import contextlib
import gc
import io
import sys
import types
import warnings

import pytest
import torch

import burnish

SHOWN = next(f for f in gc.get_objects() if type(f) is types.FunctionType and f.__qualname__ == "_showwarnmsg_impl")
"""What shows warnings on ``sys.stderr``: pytest has put another function in its place."""


RECORDED = {
    "len": lambda log: len(log),
    "truth": lambda log: "some" if log else "none",
    "last": lambda log: str(log[-1].message) if len(log) else "",
    "loop": lambda log: [str(each.message) for each in log],
    "equal": lambda log: log == [],
    "text": lambda log: str(log).count("WarningMessage"),
    "in": lambda log: None in log,
    "clear": lambda log: log.clear(),
    "append": lambda log: log.append(warnings.WarningMessage("own", UserWarning, "", 1)),
    "slice": lambda log: len(log[:]),
    "unpack": lambda log: len([*log]),
    "reversed": lambda log: len(list(reversed(log))),
    "method": lambda log: len(log.copy()),
}


@pytest.mark.parametrize("read", RECORDED.values(), ids=RECORDED)
@pytest.mark.parametrize("warn", [lambda: warnings.warn("late"), lambda: eval("1 is 1")], ids=["warn", "eval"])
def test_what_reads_a_list_that_records_finds_the_warnings_so_far(warn, read):
    def fn(x, log):
        warn()
        y = x * 2
        found = read(log)
        warn()
        return y, found, read(log)

    def inside(x):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            return fn(x, log)

    def outcomes(function, action):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter(action)
            found = function(torch.ones(2), log)
        return str(found[0].tolist()), found[1:], [str(each.message) for each in log]

    compiled, compiled_inside = burnish.compile(fn), burnish.compile(inside)
    for action in ("always", "always", "ignore", "always", "always"):
        assert outcomes(compiled, action) == outcomes(fn, action)
        assert compiled_inside(torch.ones(2))[1:] == inside(torch.ones(2))[1:]
    assert burnish.was_compiled(compiled)


def test_the_list_that_records_may_be_another_argument_in_each_call():
    def fn(x, one, other):
        warnings.warn("late")
        return x * 2, len(one)

    def outcomes(function):
        found = []
        for which in (None, 1, 0, None, 1, 0, 1, None):
            lists = [], []
            with warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("always")
                found.append(function(torch.ones(2), *(log if i == which else lists[i] for i in range(2)))[1])
                found.append(len(log))
        return found

    compiled = burnish.compile(fn)
    assert outcomes(compiled) == outcomes(fn) and burnish.was_compiled(compiled)


@pytest.mark.parametrize("warn", [lambda: warnings.warn("late"), lambda: eval("1 is 1")], ids=["warn", "eval"])
def test_a_warning_goes_to_the_stream_that_the_program_has_put_into_sys(warn, monkeypatch):
    def redirected(x):
        stream = io.StringIO()
        with contextlib.redirect_stderr(stream):
            warn()
        warn()
        return x * 2, stream.getvalue()

    def assigned(x):
        stream, before = io.StringIO(), sys.stderr
        sys.stderr = stream
        warn()
        sys.stderr = before
        return x * 2, stream.getvalue()

    def outcomes(function):
        found, outside = [], io.StringIO()
        for action in ("always", "always", "always", "ignore", "always"):
            with warnings.catch_warnings(), monkeypatch.context() as patch:
                patch.setattr(warnings, "showwarning", warnings._showwarning_orig)
                patch.setattr(warnings, "_showwarnmsg_impl", SHOWN)
                patch.setattr(sys, "stderr", outside)
                warnings.simplefilter(action)
                y, text = function(torch.ones(2))
            found.append((y.tolist(), text, outside.getvalue()))
        return found

    for fn in (redirected, assigned):
        compiled = burnish.compile(fn)
        expected = outcomes(fn)
        assert expected[0][1] and not expected[3][1]
        assert outcomes(compiled) == expected and burnish.was_compiled(compiled)


def test_a_warning_goes_to_the_function_that_the_program_has_put_into_warnings():
    def fn(x, log):
        before = warnings.showwarning
        warnings.showwarning = lambda message, *_: log.append(str(message))
        warnings.warn("late")
        found = len(log)
        warnings.showwarning = before
        return x * 2, found

    def outcomes(function):
        found = []
        for action in ("always", "always", "ignore", "always"):
            log = []
            with warnings.catch_warnings():
                warnings.simplefilter(action)
                found.append((function(torch.ones(2), log)[1], log))
        return found

    compiled = burnish.compile(fn)
    assert outcomes(compiled) == outcomes(fn)
