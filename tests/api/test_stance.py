"""Stances: how compiled functions run inside a block or until the next call of set_stance."""

import pytest
import torch

import burnish
from burnish.errors import UserError

from .recording_backend import Recording

X = torch.arange(4.0)


@pytest.fixture
def recording():
    return Recording()


@pytest.fixture
def scaled(recording):
    return burnish.compile(lambda x, scale: x * scale, backend=recording)


def test_force_eager_runs_plain_python_also_where_something_is_compiled(recording, scaled):
    scaled(X, 2)
    scaled(X, 2)
    assert recording.runs == 1
    with burnish.set_stance("force_eager"):
        assert torch.equal(scaled(X, 2), X * 2)
        assert torch.equal(scaled(X, 3), X * 3)
        assert not burnish.compile(lambda: burnish.is_compiling())()
    assert (len(recording.graphs), recording.runs) == (1, 1)
    scaled(X, 2)
    assert recording.runs == 2


def test_force_eager_holds_for_modules(recording):
    module = torch.nn.Linear(4, 4)
    compiled = burnish.compile(module, backend=recording)
    with burnish.set_stance("force_eager"):
        torch.testing.assert_close(compiled(X), module(X))
    assert not recording.graphs


def test_eager_on_recompile_uses_existing_code(recording, scaled):
    scaled(X, 2)
    with burnish.set_stance("eager_on_recompile"):
        assert torch.equal(scaled(X, 2), X * 2)
        assert torch.equal(scaled(X, 3), X * 3)
    assert (len(recording.graphs), recording.runs) == (1, 1)


def test_fail_on_recompile_raises_and_says_what_changed(recording, scaled):
    with burnish.set_stance("fail_on_recompile"):
        scaled(X, 2)
        scaled(X, 2)
        with pytest.raises(burnish.Unsupported, match="(?s)fail_on_recompile.*scale.*2.*3"):
            scaled(X, 3)
    assert torch.equal(scaled(X, 3), X * 3)


def test_stance_set_by_a_call_stays_until_the_next(recording, scaled):
    burnish.set_stance("force_eager")
    scaled(X, 2)
    assert not recording.graphs
    burnish.set_stance("default")
    scaled(X, 2)
    assert len(recording.graphs) == 1


def test_blocks_nest_and_one_object_can_be_entered_again(recording, scaled):
    eager = burnish.set_stance("force_eager")
    with eager:
        with burnish.set_stance("default"):
            with eager:
                scaled(X, 2)
                assert not recording.graphs
            scaled(X, 2)
            assert len(recording.graphs) == 1
        scaled(X, 3)
        assert len(recording.graphs) == 1
    with eager:
        scaled(X, 3)
        assert len(recording.graphs) == 1
    scaled(X, 3)
    assert len(recording.graphs) == 2


def test_block_that_raises_puts_the_stance_back(recording, scaled):
    with pytest.raises(ZeroDivisionError), burnish.set_stance("force_eager"):
        1 / 0
    scaled(X, 2)
    assert len(recording.graphs) == 1


def test_as_a_decorator_the_stance_holds_while_the_function_runs(recording, scaled):
    @burnish.set_stance("force_eager")
    def plainly():
        return scaled(X, 2)

    scaled(X, 2)
    assert len(recording.graphs) == 1, "decorating alone sets nothing"
    assert plainly.__name__ == "plainly"
    plainly()
    plainly()
    assert recording.runs == 0
    scaled(X, 2)
    assert recording.runs == 1


@pytest.mark.parametrize(
    "use, said",
    [
        (lambda: burnish.set_stance("force_eagre"), 'no stance .force_eagre.. Did you mean "force_eager"'),
        (lambda: burnish.set_stance(3), "no stance 3"),
        (lambda: burnish.set_stance("default", force_backend="eager"), "burnish.compile.fn, backend"),
        (lambda: burnish.set_stance("default", skip_guard_eval_unsafe=True), "guards are always checked"),
        (lambda: burnish.set_stance("default")(3), "decorates a function, not 3"),
    ],
)
def test_wrong_stance_is_a_user_error(use, said):
    with pytest.raises(UserError, match=said):
        use()


def test_a_stance_set_through_torch_applies(recording, scaled):
    scaled(X, 2)
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(scaled(X, 3), X * 3)
        assert not burnish.compile(lambda: burnish.is_compiling())()
    assert (len(recording.graphs), recording.runs) == (1, 0)
    with torch.compiler.set_stance("eager_on_recompile"):
        assert torch.equal(scaled(X, 2), X * 2)
        assert torch.equal(scaled(X, 3), X * 3)
    assert (len(recording.graphs), recording.runs) == (1, 1)
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(burnish.Unsupported, match="fail_on_recompile"):
        scaled(X, 3)
    scaled(X, 3)
    assert len(recording.graphs) == 2


def test_our_stance_counts_before_torchs(recording, scaled):
    with torch.compiler.set_stance("fail_on_recompile"), burnish.set_stance("force_eager"):
        assert torch.equal(scaled(X, 2), X * 2)
    assert not recording.graphs


def test_stances_of_torch_that_say_when_to_compile_are_the_default(recording, scaled):
    with torch.compiler.set_stance("eager_then_compile"):
        assert torch.equal(scaled(X, 2), X * 2)
    assert len(recording.graphs) == 1
