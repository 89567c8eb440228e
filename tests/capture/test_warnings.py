"""``warnings.warn`` points at the user's lines, whether the line was traced, replayed or run as plain Python."""

import warnings

import torch

import burnish


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
