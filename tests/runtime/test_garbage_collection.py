"""Garbage collection runs when the program's own code runs, and not while Burnish creates its objects."""

import gc
import weakref

import pytest
import torch

import burnish
from burnish.concurrency import pause_garbage_collection

X = torch.ones(4)


@pytest.fixture
def eager_collector():
    """A collector with the lowest thresholds; gives the list of its phases, and restores the thresholds."""
    before, found = gc.get_threshold(), []

    def note(phase, info):
        found.append(phase)

    gc.set_threshold(1, 1, 1)
    gc.callbacks.append(note)
    try:
        yield found
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)


def test_it_goes_on_as_it_was():
    for was_on in (True, False):
        try:
            (gc.enable if was_on else gc.disable)()
            with pytest.raises(ValueError), pause_garbage_collection.paused():
                assert not gc.isenabled()
                raise ValueError
            assert gc.isenabled() == was_on
            assert torch.equal(burnish.compile(lambda x: x * 2)(X), X * 2)
            assert gc.isenabled() == was_on
        finally:
            gc.enable()


def test_nothing_is_looked_at_while_a_graph_is_compiled(eager_collector, monkeypatch):
    from burnish.compiler import compile_or_fall_back, load_or_compile

    seen = []

    def noting(make):
        def made(*args):
            before = len(eager_collector)
            answer = make(*args)
            seen.append(len(eager_collector) - before)
            return answer

        return made

    monkeypatch.setattr(compile_or_fall_back, "recipe_of", noting(load_or_compile.recipe_of))
    compiled = burnish.compile(lambda x: (x.sin() + 1).cumsum(0))
    assert torch.allclose(compiled(X), (X.sin() + 1).cumsum(0))
    assert seen == [0] and gc.isenabled()
    before = len(eager_collector)
    kept = [[k] for k in range(100)]
    assert len(eager_collector) > before and len(kept) == 100


def test_the_programs_own_code_runs_with_it():
    seen = []

    @burnish.disable
    def plain(x):
        seen.append(gc.isenabled())
        return x + 1

    assert torch.equal(burnish.compile(lambda x: plain(x * 2) * 3)(X), (X * 2 + 1) * 3)
    assert seen == [True]


def test_another_compiler_runs_with_it():
    seen = []

    def backend(gm, example_inputs):
        seen.append(gc.isenabled())
        return gm.forward

    assert torch.equal(burnish.compile(lambda x: x * 2, backend=backend)(X), X * 2)
    assert seen == [True]


def test_it_goes_on_after_a_refusal():
    def fn(x):
        print(x.sum().numpy())
        return x

    with pytest.raises(burnish.Unsupported):
        burnish.compile(fn, fullgraph=True)(X)
    assert gc.isenabled()


def test_a_refusal_leaves_nothing_for_the_collector():
    """Objects of the trace are freed with the error, without a garbage collection."""

    def fn(x):
        y = x * 2
        print(y.sum().numpy())
        return y

    compiled, x = burnish.compile(fn, fullgraph=True), torch.ones(4)
    gc.collect()
    gc.disable()
    try:
        met = weakref.ref(x)
        try:
            compiled(x)
        except burnish.Unsupported:
            pass
        else:
            raise AssertionError("it was not refused")
        del x
        assert met() is None
    finally:
        gc.enable()
