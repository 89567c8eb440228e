"""A graph that raises where plain Python does not is abandoned, with its error; data-dependent errors do not count."""

import pytest
import torch

import burnish

X = torch.arange(4.0)


def compiled_to_fail(fn, *args, in_calls=frozenset(range(100))):
    """`fn` compiled; its first graph raises in the calls of these numbers, counted from here."""
    compiled = burnish.compile(fn)
    for _ in range(2):
        compiled(*args)
    (segment,) = compiled.__burnish_program__.entry.segments
    graph, calls = segment.graph, []

    def failing(*inputs):
        calls.append(inputs)
        if len(calls) - 1 in in_calls:
            raise RuntimeError("this kernel is broken")
        return graph(*inputs)

    segment.graph = failing
    return compiled, calls


@pytest.mark.falls_back("internal")
def test_graph_that_always_raises_is_abandoned_with_its_error():
    compiled, calls = compiled_to_fail(lambda x: x * 3, X)
    for _ in range(2):
        assert torch.equal(compiled(X), X * 3)
    entry = compiled.__burnish_program__.entry
    assert not entry.given_up
    with pytest.warns(UserWarning, match="RuntimeError: this kernel is broken' in 3 calls in a row, and plain Python"):
        assert torch.equal(compiled(X), X * 3)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 3)
    assert len(calls) == 3 and entry.given_up and not burnish.was_compiled(compiled)


def test_graph_that_runs_in_between_stays():
    compiled, calls = compiled_to_fail(lambda x: x * 3, X, in_calls={0, 1, 3, 4, 6, 7})
    for _ in range(10):
        assert torch.equal(compiled(X), X * 3)
    assert len(calls) == 10 and burnish.was_compiled(compiled)


@pytest.mark.parametrize("is_handled", [False, True])
def test_errors_of_the_data_are_not_counted(is_handled):
    def fn(x, i):
        try:
            return x[i] * 2
        except IndexError:
            if not is_handled:
                raise
            return x

    compiled, good, bad = burnish.compile(fn), torch.tensor([1]), torch.tensor([9])
    for _ in range(2):
        compiled(X, good)
    for _ in range(5):
        if is_handled:
            assert compiled(X, bad) is X
        else:
            with pytest.raises(IndexError):
                compiled(X, bad)
    assert torch.equal(compiled(X, good), X[good] * 2) and burnish.was_compiled(compiled)


@pytest.mark.falls_back("internal")
def test_segment_after_a_break_is_abandoned_and_the_one_before_it_stays():
    def fn(x):
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        return y - 3

    compiled = burnish.compile(fn)
    for _ in range(3):
        compiled(X)
    program = compiled.__burnish_program__
    (after,) = program.continuations.values()
    (segment,) = after.segments

    def failing(*inputs):
        raise RuntimeError("this kernel is broken")

    segment.graph = failing
    with pytest.warns(UserWarning, match="this kernel is broken"):
        for _ in range(4):
            assert torch.equal(compiled(X), fn(X))
    assert after.given_up and not after.segments
    assert not program.entry.given_up and len(program.entry.segments) == 1
