"""The setting `native_guards`: without it no object's memory is read, and programs are compiled and right."""

import pytest
import torch
from torch import nn

import burnish
from burnish.compiler import provide_guard_watch
from burnish.runtime.state_watch import native_watch, tensor_guard_layout, tensor_mutation_watch
from burnish.settings import patch


@pytest.fixture
def nothing_is_read(monkeypatch):
    def refuse(*args):
        raise AssertionError("memory was read")

    for module in (native_watch, tensor_guard_layout, tensor_mutation_watch):
        for name in ("word_at", "words_at", "word_behind"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(native_watch.Watch, "__init__", refuse)
    with patch(native_guards=False, check=False):
        yield


def scaled(state):
    def fn(x):
        return torch.relu(x * state["scale"]).softmax(-1)

    return fn


def broken(x):
    return torch.sin(x) if x.sum() > 0 else torch.cos(x)


def test_functions_run_compiled_and_see_changes(nothing_is_read):
    state, x = {"scale": 2.0}, torch.randn(3, 4)
    fn = scaled(state)
    compiled = burnish.compile(fn)
    for scale in (2.0, 2.0, 3.0, 2.0):
        state["scale"] = scale
        for _ in range(100):
            torch.testing.assert_close(compiled(x), fn(x))
        assert burnish.was_compiled(compiled)


def test_program_with_a_break_runs_compiled(nothing_is_read):
    compiled = burnish.compile(broken)
    for x in (torch.ones(3), -torch.ones(3)) * 40:
        torch.testing.assert_close(compiled(x), broken(x))
    assert burnish.was_compiled(compiled)


@pytest.mark.parametrize("with_gradients", [False, True])
def test_modules_with_packed_weights_see_their_changes(with_gradients, nothing_is_read):
    model, x = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), torch.randn(8, 16)
    compiled = burnish.compile(model)
    with torch.set_grad_enabled(with_gradients):
        for _ in range(3):
            for _ in range(80):
                torch.testing.assert_close(compiled(x), model(x))
            with torch.no_grad():
                model[0].weight.mul_(2)
        assert burnish.was_compiled(compiled)


def test_with_the_setting_on_memory_is_read(monkeypatch):
    """Or the tests above could not fail."""
    if provide_guard_watch.new_watch() is None:
        pytest.skip("this Python keeps its objects in another way")
    made, begin = [], native_watch.Watch.__init__
    monkeypatch.setattr(native_watch.Watch, "__init__", lambda self, *args: (made.append(1), begin(self, *args))[1])
    compiled, x = burnish.compile(broken), torch.ones(3)
    with patch(check=False):
        for _ in range(100):
            compiled(x)
    assert made
