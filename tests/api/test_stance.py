"""Stances: how compiled functions run inside a block or until the next call of set_stance."""

import pytest
import torch

import burnish
from burnish.errors import UserError

from ..recorded_events import recorded
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


def test_eager_on_recompile_compiles_nothing_new(recording, scaled):
    with burnish.set_stance("eager_on_recompile"):
        assert torch.equal(scaled(X, 2), X * 2)
    assert not recording.graphs and not burnish.was_compiled(scaled)


def test_fail_on_recompile_raises_and_says_what_changed(recording, scaled):
    scaled(X, 2)
    with burnish.set_stance("fail_on_recompile"):
        scaled(X, 2)
        with pytest.raises(burnish.Unsupported, match="(?s)fail_on_recompile.*scale.*2.*3"):
            scaled(X, 3)
    assert torch.equal(scaled(X, 3), X * 3)


def test_fail_on_recompile_raises_where_nothing_is_compiled_yet(recording, scaled):
    for kind in (RuntimeError, burnish.Unsupported, torch._dynamo.exc.RecompileError):
        with burnish.set_stance("fail_on_recompile"), pytest.raises(kind, match="Nothing is compiled"):
            scaled(X, 2)
    assert burnish.compile(lambda: 3)() == 3, "without tensors there is nothing to compile"
    assert not recording.graphs


@pytest.mark.falls_back("sizes")
@pytest.mark.parametrize("name", ["eager_then_compile", "aot_eager_then_compile"])
@pytest.mark.parametrize("of_torch", [False, True])
def test_the_second_call_compiles_for_values_missing_in_the_first(recording, name, of_torch):
    seen = []

    def fn(x, scale):
        seen.append(burnish.is_compiling())
        return (x * scale).sum(0)

    compiled = burnish.compile(fn)
    set_stance = torch.compiler.set_stance if of_torch else burnish.set_stance
    with recorded("segment") as segments, set_stance(name):
        for n in (4, 5, 9, 2):
            x = torch.randn(n, 3)
            torch.testing.assert_close(compiled(x, n), (x * n).sum(0))
    assert seen == [False, True, True, True] and len(segments) == 1


def test_the_first_call_of_a_module_is_plain_and_sizes_of_its_arguments_are_compared():
    linear = torch.nn.Linear(3, 2)
    compiled = burnish.compile(linear)
    with recorded("segment") as segments, burnish.set_stance("eager_then_compile"):
        for n in (4, 5, 9):
            x = torch.randn(n, 3)
            torch.testing.assert_close(compiled(x), linear(x))
            assert burnish.was_compiled(compiled) == (n != 4)
    assert len(segments) == 1


@pytest.mark.parametrize("of_torch", [False, True])
@pytest.mark.parametrize("kind", ["function", "method", "module", "in place", "regions"])
def test_force_backend_compiles_everything_with_that_backend(kind, of_torch):
    class Holder:
        def double(self, x):
            return x * 2

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x)

    plain, compiled = {
        "function": lambda: (torch.sin, burnish.compile(lambda x: torch.sin(x))),
        "method": lambda: (lambda x: x * 2, burnish.compile(Holder().double)),
        "module": lambda: (net := torch.nn.Linear(4, 4), burnish.compile(net)),
        "in place": lambda: (torch.nn.Linear.forward.__get__(net := torch.nn.Linear(4, 4)), burnish.compile_(net)),
        "regions": lambda: (
            lambda x: blocks[1].inner(blocks[0].inner(x)),
            burnish.compile_regions(blocks := torch.nn.Sequential(Block(), Block())),
        ),
    }[kind]()
    forced = Recording()
    set_stance = torch.compiler.set_stance if of_torch else burnish.set_stance
    with set_stance("default", force_backend=forced):
        for _ in range(3):
            torch.testing.assert_close(compiled(X), plain(X))
        assert burnish.was_compiled(compiled)
    graphs = len(forced.graphs)
    assert graphs == (2 if kind == "regions" else 1) and forced.runs >= 2  # the second block gets a gradient
    runs = forced.runs
    torch.testing.assert_close(compiled(X), plain(X))
    assert forced.runs == runs, "the function has its own backend again"
    with set_stance("default", force_backend=forced):
        compiled(X)
    assert len(forced.graphs) == graphs, "what was compiled before is used again"


@pytest.mark.parametrize("kind", ["function", "method", "module"])
def test_error_under_a_forced_backend_shows_the_users_lines_alone(kind):
    class Breaks(torch.nn.Module):
        def forward(self, x):
            burnish.graph_break()
            return x

    module = Breaks()
    subject = {"function": lambda x: module.forward(x), "method": module.forward, "module": module}[kind]
    compiled = burnish.compile(subject, fullgraph=True)
    with burnish.set_stance("default", force_backend="eager"), pytest.raises(burnish.Unsupported) as raised:
        compiled(X)
    assert {str(entry.path) for entry in raised.traceback} == {__file__}


def test_force_backend_keeps_the_other_arguments_of_compile():
    def breaks(x):
        return x if x.sum() > 0 else -x

    compiled = burnish.compile(breaks, fullgraph=True)
    with burnish.set_stance(force_backend="eager"), pytest.raises(burnish.Unsupported):
        compiled(X)


def test_skipping_guards_is_accepted_and_they_are_checked(recording, scaled):
    scaled(X, 2)
    with burnish.set_stance("default", skip_guard_eval_unsafe=True):
        assert torch.equal(scaled(X, 3), X * 3)
    assert len(recording.graphs) == 2


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
        (lambda: burnish.set_stance("force_eager", force_backend="eager"), "only the default stance takes a backend"),
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
