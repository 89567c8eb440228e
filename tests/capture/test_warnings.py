"""``warnings.warn`` points at the user's lines, whether the line was traced, replayed or run as plain Python."""

import datetime
import itertools
import operator
import re
import sys
import threading
import unittest
import warnings

import numpy
import pytest
import torch
from typing_extensions import deprecated

import burnish
from burnish.capture.interpreter import emulated_frames
from burnish.captured_graph import warnings_already_given


def inner(x):
    warnings.warn("in the caller", stacklevel=2)
    return x + 1


def fn(x):
    warnings.warn("here")
    y = inner(x)
    warnings.warn("outside", DeprecationWarning, stacklevel=2)
    if y.sum() > 0:
        y = y * 2
    warnings.warn(RuntimeWarning("after a break"))
    return y


def given_by(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(torch.ones(2))
    return [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


def test_warnings_come_with_their_lines():
    want = given_by(fn)
    assert len(want) == 4
    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        assert given_by(compiled) == want


UNUSUAL = {
    "source": lambda x: warnings.warn("a", ResourceWarning, source=x),
    "source of a caller": lambda x: warnings.warn("a", ResourceWarning, stacklevel=2, source=x),
    "source by position": lambda x: warnings.warn("a", ResourceWarning, 1, x),
    "no text": lambda x: warnings.warn(5),
    "no text, of a caller": lambda x: warnings.warn(5, stacklevel=2),
    "twice": lambda x: warnings.warn("a", message="b"),
}


@pytest.mark.parametrize("warn", UNUSUAL.values(), ids=UNUSUAL)
def test_a_warning_with_unusual_arguments_points_at_its_line(warn):
    def fn(x):
        warn(x)
        return x + 1

    def outcome(function):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                made = function(torch.ones(2)).tolist()
            except TypeError as error:
                made = str(error)
        return made, [(str(w.message), w.category, w.filename, w.lineno, type(w.source)) for w in caught]

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        assert outcome(compiled) == outcome(fn)
    assert burnish.was_compiled(compiled) or warn is UNUSUAL["twice"]


def test_a_warning_in_a_module_of_which_nothing_else_is_read():
    """Its globals are an argument of the effect: the dictionary itself, and not a copy of what is in it."""
    module = {"__name__": "elsewhere", "__loader__": object()}
    exec("def fn(x, warn):\n    warn('hello')\n    return x + 1", module)
    compiled = burnish.compile(module["fn"], backend="eager", fullgraph=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            compiled(torch.ones(2), warnings.warn)
    assert len(caught) == 1 and ("hello", UserWarning, 2) in module["__warningregistry__"]
    assert burnish.was_compiled(compiled)


def test_a_warning_ends_no_graph():
    def only(x):
        warnings.warn("once", UserWarning)
        return x + 1

    compiled = burnish.compile(only, backend="eager", fullgraph=True)
    assert given_by(compiled) == given_by(only) == given_by(compiled)


def test_warnings_that_become_errors_later_are_met_by_the_users_handlers():
    def fn(x):
        try:
            warnings.warn("stop")
        except UserWarning as error:
            return str(error), x - 1
        return "went on", x + 1

    compiled = burnish.compile(fn, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            assert compiled(torch.ones(1))[0] == "went on"
        warnings.simplefilter("error")
        for _ in range(2):
            assert compiled(torch.ones(1))[0] == "stop"
        warnings.simplefilter("ignore")
        warnings.filters.pop(1)
        assert compiled(torch.ones(1))[0] == "went on"


def in_a_block(x, silent):
    warnings.warn("before")
    with warnings.catch_warnings():
        if silent:
            warnings.simplefilter("ignore", UserWarning)
        warnings.warn("inside")
        warnings.warn("old", DeprecationWarning)
        y = inner(x)
    warnings.warn("behind")
    return y * 2


def test_a_block_of_filters_ends_no_graph():
    for silent in (True, False, True):
        compiled = burnish.compile(in_a_block, backend="eager", fullgraph=True)
        want = given_by(lambda x: in_a_block(x, silent))  # noqa: B023
        before = list(warnings.filters)
        for _ in range(3):
            assert given_by(lambda x: compiled(x, silent)) == want  # noqa: B023
        assert list(warnings.filters) == before


def test_a_block_with_a_break_inside():
    def fn(x):
        with warnings.catch_warnings(action="ignore") if sys.version_info >= (3, 11) else warnings.catch_warnings():
            warnings.warn("silent")
            if x.sum() > 0:
                warnings.simplefilter("always")
                x = x * 2
            warnings.warn("maybe")
        warnings.warn("behind")
        return x + 1

    compiled = burnish.compile(fn, backend="eager")
    for sign in (1, -1, 1, -1, 1, -1):
        before = list(warnings.filters)
        want = given_by(lambda x: fn(x * sign))  # noqa: B023
        assert given_by(lambda x: compiled(x * sign)) == want  # noqa: B023
        assert list(warnings.filters) == before


def test_an_error_inside_a_block_restores_the_filters():
    def fn(x):
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="no.*")
                warnings.warn("nothing")
                warnings.warn("something")
                raise KeyError("k")
        except KeyError:
            warnings.warn("nothing again")
        return x + 1

    want = given_by(fn)
    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        assert given_by(compiled) == want


def test_what_torch_warns_of_inside_a_block_meets_its_filters():
    def quiet(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = torch.nn.functional.mse_loss(x[None], x)
        return y + 1, torch.nn.functional.mse_loss(x, x[None])

    want = given_by(quiet)
    assert len(want) == 1
    compiled = burnish.compile(quiet, backend="eager")
    for _ in range(3):
        assert [w[:2] for w in given_by(compiled)] == [w[:2] for w in want]


def test_warnings_that_are_recorded_are_in_the_list():
    def fn(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("kept")
        return x + len(seen), [str(w.message) for w in seen]

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        out, seen = compiled(torch.ones(2))
        assert seen == ["kept"] and out.tolist() == [2.0, 2.0]


SCALE = 2.0


@deprecated("use another one")
def scaled(x):
    return x * SCALE


@deprecated("use another one")
class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x * self.by


def test_what_is_deprecated_is_looked_into(monkeypatch):
    """The wrapper is typing_extensions', the function and the class are the user's."""

    def fn(x):
        return scaled(x) + Scale(SCALE)(x)

    compiled = burnish.compile(fn, fullgraph=True)
    for scale in (2.0, 3.0, 3.0):
        monkeypatch.setattr(sys.modules[__name__], "SCALE", scale)
        assert given_by(compiled) == given_by(fn) and len(given_by(fn)) == 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2 * scale))


def test_older_names_of_autocast_stay_in_the_graph():
    def fn(x):
        with torch.cpu.amp.autocast(dtype=torch.bfloat16):
            return x @ x

    compiled = burnish.compile(fn, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [compiled(torch.ones(2, 2)).dtype for _ in range(2)] == [torch.bfloat16] * 2


def test_recorded_warnings_follow_the_filters_outside():
    case = unittest.TestCase()

    def failure(function):
        try:
            function()
        except AssertionError as error:
            return str(error)

    def none():
        with case.assertWarns(UserWarning):
            pass

    def another():
        with case.assertWarnsRegex(UserWarning, "q"):
            warnings.warn("x")

    def fn(x, text):
        with case.assertWarns(DeprecationWarning) as caught:
            warnings.warn("a" + text, DeprecationWarning)
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            warnings.warn("one")
            warnings.warn("two")
        with warnings.catch_warnings(record=True) as outer:
            warnings.warn("outer")
            warnings.warn("outer")
        warnings.warn("shown " + text)
        texts = [[str(each.message) for each in found] for found in (log, outer)]
        return x + 1, str(caught.warning), caught.lineno, failure(none), failure(another), texts

    def run(function, action, text):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(action)
            found = function(torch.ones(2), text)
        return str(found), [(str(each.message), each.lineno) for each in seen if "burnish" not in str(each.message)]

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    before = list(warnings.filters)
    run(fn, "ignore", "p")  # assertWarns asks each module for its registry; lazy ones (torch.utils.mkldnn) warn once
    for action, text in (("default", "p"), ("default", "p"), ("always", "p"), ("ignore", "p"), ("default", "q")):
        assert run(compiled, action, text) == run(fn, action, text)
    assert warnings.filters == before


def test_a_list_that_still_records_does_not_leave_the_graph():
    def fn(x):
        block = warnings.catch_warnings(record=True)
        return x + 1, block.__enter__(), block

    before = list(warnings.filters)
    with warnings.catch_warnings(), pytest.raises(burnish.errors.Unsupported, match="still records"):
        burnish.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    assert warnings.filters == before


@pytest.mark.parametrize("mode", ["always", "error"])
def test_warnings_of_python_itself(mode):
    """Each run of a segment repeats them, at the user's line."""

    def fn(x, flag, value):
        found = [~flag, operator.inv(flag)]
        for truth in (bool, operator.not_, lambda value: not value):
            try:
                found.append(truth(value))
            except TypeError as error:  # from 3.14 on
                found.append(str(error))
        found += [re.sub("a", "b", "cat", 1), datetime.datetime.utcfromtimestamp(0), datetime.datetime.utcnow() is None]
        return found, x + 1

    def outcome(function):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(mode)
            try:
                found = function(torch.ones(2), True, NotImplemented)
            except DeprecationWarning as error:
                found = str(error)
        return repr(found), [(str(w.message), w.filename, w.lineno) for w in caught]

    compiled = burnish.compile(fn, backend="eager")
    want = outcome(fn)
    for _ in range(3):
        assert outcome(compiled) == want


def test_warnings_stay_shown_once_when_iterators_are_made_again():
    def fn(x, n):
        warnings.warn("shown once")
        kept = [itertools.count(n), map(abs, [n])]
        operator.index(n)
        warnings.warn("shown once")
        if x.sum() > n:
            x = x + next(kept[0])
        return x, kept

    compiled = burnish.compile(fn, backend="eager")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for n in range(4):
            compiled(torch.ones(2), n)
    lines = [w.lineno - fn.__code__.co_firstlineno for w in seen if "burnish" not in str(w.message)]
    assert lines == [1, 4]


def of_torch(x):
    y = torch.std(x[:1])  # C++ warns
    z = torch.std(x[:1])
    return torch.nn.functional.softmax(x), y, z  # Python warns about the line that calls it


def of_values_and_breaks(x):
    print(end="")
    y = torch.tensor(x)
    if x.sum() > 0:
        y = y + 1
    return y, (y * 2).grad


def of_numpy(x):
    print(end="")
    return x + 1, numpy.int8(100) + numpy.int8(100)


def of_bool(x):
    return x + 1, ~True, True.__invert__()


def given_in_calls(function, count):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for size in range(3, 3 + count):
            function(torch.ones(size))
    return [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("warns", [of_torch, of_values_and_breaks, of_numpy, of_bool])
def test_native_code_warns_once_about_the_line_that_calls_it(warns, backend):
    """The graph repeats the calls, and so does the compiler: no line of generated code is one more to warn about."""
    want = given_in_calls(warns, 5)
    assert given_in_calls(burnish.compile(warns, backend=backend), 5) == want


def test_errors_of_native_code_have_no_further_frames():
    def fails(x):
        return torch.cat([x, "a"])

    def lines(function):
        with pytest.raises(TypeError) as error:
            function(torch.ones(2))
        return [entry.lineno for entry in error.traceback if entry.path.name == "test_warnings.py"][-1:], len(
            [entry for entry in error.traceback if str(entry.path) == __file__]
        )

    compiled = burnish.compile(fails, backend="eager")
    want = lines(fails)
    assert [lines(compiled) for _ in range(3)] == [want] * 3


@pytest.mark.parametrize("action", ["once", "module"])
def test_filters_that_note_warnings_without_a_line(action):
    def fn(x):
        return torch.std(x[:1]) + x

    def given(function):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            for _ in range(3):
                function(torch.ones(2))
        return [w.lineno for w in caught if "std" in str(w.message)]

    assert given(burnish.compile(fn, backend="eager")) == [fn.__code__.co_firstlineno + 1]


def test_other_threads_warn_while_a_graph_is_recorded():
    namespace, ends = {"torch": torch, "warnings": warnings, "__name__": "of_threads"}, threading.Event()
    text = (
        "def warn(n): warnings.warn(f'{n}')\ndef fn(x):\n for _ in range(40): x = x + torch.std(x[:1]).nan_to_num()\n"
    )
    exec(text + " return x", namespace)

    def warn_on():
        for n in itertools.count():
            namespace["warn"](n)
            if ends.is_set():
                break

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("default")
        thread = threading.Thread(target=warn_on)
        thread.start()
        try:
            assert torch.equal(burnish.compile(namespace["fn"], backend="eager")(torch.ones(2)), torch.ones(2))
        finally:
            ends.set()
            thread.join()


def test_each_warning_of_a_module_is_looked_at_once():
    look = warnings_already_given.Look({})
    for n in range(100):
        look.registry[f"text {n}", UserWarning, n % 7] = True
        known: dict = {}
        warnings_already_given._looks[id(look.registry)] = look
        warnings_already_given.note(known, look.registry, n % 7)
        assert (f"text {n}", UserWarning, n % 7) in known and len(known) == n // 7 + 2
        before = look.by_line
    assert look.by_line is before and sum(map(len, before.values())) == 100
    look.registry.clear()
    look.registry.update({"version": 3, ("other", UserWarning, 1): True})
    known = {}
    warnings_already_given.note(known, look.registry, 1)
    assert known == {"version": 3, ("other", UserWarning, 1): True}


def test_errors_that_override_their_tracebacks():
    class Odd(Exception):
        __traceback__ = property(lambda self: 1 / 0)

        def with_traceback(self, traceback):
            return 1 / 0

    try:
        raise Odd
    except BaseException as error:
        found = error
    assert emulated_frames.without(found, 1) is found


def test_functions_of_torch_that_compute_with_others_of_it_warn_about_their_caller():
    attention = torch.nn.MultiheadAttention(4, 2)

    def fn(x):
        x = torch.nn.functional.upsample(x[None, None], scale_factor=2)[0, 0]
        x = torch.nn.functional.upsample_nearest(x[None], size=4)[0]
        x = torch.nn.functional.upsample_bilinear(x[None, None], size=4)[0, 0]
        x = attention(x, x, x, key_padding_mask=torch.zeros(4, dtype=torch.bool), attn_mask=torch.zeros(4, 4))[0]
        return torch.nn.MSELoss(size_average=False)(x, x + 1)

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for function in (fn, compiled, compiled, compiled):
            function(torch.ones(2, 2))
    given = [(str(w.message), w.category, w.filename, w.lineno) for w in caught]
    want, *others = [given[at : at + 5] for at in range(0, len(given), 5)]
    assert others == [want] * 3 and [line[2] == __file__ for line in want] == [True, True, True, False, False]
