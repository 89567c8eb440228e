"""Marks of torch's own decorators on functions and blocks: read where Dynamo keeps them, without loading it."""

import operator

import pytest
import torch
import torch._dynamo

import burnish
from burnish.capture.python import builtin_functions

X = torch.arange(12.0).view(4, 3)


def breaks_of(fn, *args):
    return [str(reason.reason) for reason in burnish.explain(fn)(*args).break_reasons]


def check(fn, plain, *args, **kwargs):
    compiled = burnish.compile(fn, **kwargs)
    for _ in range(3):
        torch.testing.assert_close(compiled(*args), plain(*args))
    assert burnish.was_compiled(compiled)
    return compiled


def test_a_function_allowed_in_the_graph_is_a_node_that_runs_on_every_call():
    calls = []

    @torch.compiler.allow_in_graph
    def allowed(x):
        calls.append(len(calls))
        return x * 2

    check(lambda x: allowed(x) + 1, lambda x: x * 2 + 1, X, fullgraph=True)
    assert calls == [0, 1, 2]


def test_a_leaf_function_runs_on_every_call():
    leaf_function = pytest.importorskip("torch._dynamo.decorators").leaf_function
    calls = []

    @leaf_function
    def leaf(x):
        calls.append(float(x.sum()))
        return (x * 2,)

    leaf.register_fake(lambda x: (x * 2,))
    check(lambda x: leaf(x)[0] + 1, lambda x: x * 2 + 1, X, fullgraph=True)
    assert calls == [66.0] * 3


def branches(x):
    return x * 3 if x.sum() > 0 else x * 2


def test_a_nonstrict_function_may_branch_on_data_under_fullgraph():
    traced = torch._dynamo.nonstrict_trace(branches)
    compiled = check(lambda x: traced(x) + 1, lambda x: branches(x) + 1, X, fullgraph=True)
    torch.testing.assert_close(compiled(-X), branches(-X) + 1)


def test_a_nonstrict_function_is_traced_like_any_other_where_breaks_are_allowed():
    traced = torch._dynamo.nonstrict_trace(lambda x: x.sin() * 2)
    assert burnish.explain(lambda x: traced(x) + 1)(X).op_count == 3
    traced = torch._dynamo.nonstrict_trace(branches)
    assert "B101" in breaks_of(lambda x: traced(x) + 1, X)[0]


def test_a_result_assumed_constant_is_asked_for_once():
    calls = []

    @torch.compiler.assume_constant_result
    def factor():
        calls.append(1)
        return 5

    check(lambda x: x * factor(), lambda x: x * 5, X, fullgraph=True)
    assert calls == [1]


def test_a_substitute_of_torchs_is_interpreted_in_place_of_the_original(monkeypatch):
    original = operator.length_hint
    monkeypatch.setitem(builtin_functions.BUILTINS, original, builtin_functions.BUILTINS[original])
    calls = []

    @torch.compiler.substitute_in_graph(original)
    def length_hint(obj, default=0, /):
        calls.append(1)
        return 7

    check(lambda x: x * original([1, 2]), lambda x: x * 7, X, fullgraph=True)
    assert calls


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch._dynamo.graph_break(),
        lambda: torch._dynamo.graph_break("a message"),
        lambda: torch._dynamo.graph_break(msg="a message"),
        lambda: torch._dynamo.skip_frame(),
        lambda: torch._dynamo.step_unsupported(),
    ],
)
def test_a_break_that_is_asked_for_is_one(ask):
    def fn(x):
        y = x.sin()
        ask()
        return y.cos()

    (reason,) = breaks_of(fn, X)
    assert "B204" in reason and ("a message" in reason) == bool(ask.__code__.co_consts.count("a message"))
    check(fn, fn, X)


@pytest.mark.parametrize("recursive", [False, True])
def test_a_disabled_function_is_a_break_with_its_reason(recursive):
    disabled = torch.compiler.disable(lambda x: x * 2, recursive=recursive, reason="it talks")
    (reason,) = breaks_of(lambda x: disabled(x.sin()).cos(), X)
    assert "B203" in reason and "it talks" in reason


# ---- error_on_graph_break


def ask(x, flag):
    with torch._dynamo.error_on_graph_break(flag):
        x = x + 1
        torch._dynamo.graph_break()
    return x.sin()


@pytest.mark.skipif(not hasattr(torch._dynamo, "error_on_graph_break"), reason="not in this torch")
class TestErrorOnGraphBreak:
    def test_a_break_inside_of_the_block_is_an_error(self):
        compiled = burnish.compile(ask)
        for kind in (burnish.Unsupported, torch._dynamo.exc.Unsupported):
            with pytest.raises(kind, match="B204"):
                compiled(X, True)
        assert not torch._dynamo.utils._error_on_graph_break
        torch.testing.assert_close(compiled(X, False), ask(X, False))

    def test_breaks_outside_of_the_block_are_none(self):
        def fn(x):
            torch._dynamo.graph_break()
            with torch._dynamo.error_on_graph_break(True):
                x = x + 1
            torch._dynamo.graph_break()
            return x.sin()

        assert len(breaks_of(fn, X)) == 2
        check(fn, fn, X)

    def test_an_inner_block_allows_breaks_again(self):
        def fn(x):
            with torch._dynamo.error_on_graph_break(True):
                return ask(x, False)

        assert len(breaks_of(fn, X)) == 1
        check(fn, fn, X)

    def test_as_a_decorator_it_holds_for_the_function(self):
        @torch._dynamo.error_on_graph_break(True)
        def inner(x):
            torch._dynamo.graph_break()
            return x

        with pytest.raises(burnish.Unsupported):
            burnish.compile(lambda x: inner(x + 1))(X)

    def test_fullgraph_comes_first(self):
        with pytest.raises(burnish.Unsupported):
            burnish.compile(ask, fullgraph=True)(X, False)


# ---- marks put on tensors inside


@pytest.mark.parametrize("name", ["mark_static", "mark_static_address", "maybe_mark_dynamic"])
def test_a_mark_inside_the_function_does_not_break(name):
    mark = getattr(torch._dynamo, name)

    def fn(x):
        y = x * 2
        mark(y, *([0] if name == "maybe_mark_dynamic" else []))
        return y + 1

    assert breaks_of(fn, X) == []
    check(fn, fn, X)


# ---- decorators and contexts inside compiled code


def breaks_itself(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y * 2


@pytest.mark.parametrize("mark", ["torch._dynamo", "torch.compiler"])
def test_a_function_is_marked_nonstrict_inside_compiled_code(mark):
    owner = torch._dynamo if mark == "torch._dynamo" else torch.compiler
    if not hasattr(owner, "nonstrict_trace"):
        pytest.skip("this torch has no such mark")
    check(lambda x: owner.nonstrict_trace(breaks_itself)(x) + 1, lambda x: breaks_itself(x) + 1, X, fullgraph=True)
    scale = [2.0]

    def fn(x):
        def inner(y):
            return y * x.sum() * scale[0]

        return owner.nonstrict_trace(inner)(x)

    compiled = check(fn, fn, X, fullgraph=True)
    scale[0] = 3.0
    torch.testing.assert_close(compiled(X * 2), fn(X * 2))


def test_a_mark_that_is_put_on_inside_compiled_code_is_not_needed():
    check(
        lambda x: torch._dynamo.allow_in_graph(torch.vmap(torch.sum))(x) + 1, lambda x: x.sum(1) + 1, X, fullgraph=True
    )


def test_a_disallowed_builtin_is_a_break():
    def fn(x):
        return torch.sub(torch.add(x, 1), 1) * 2

    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        assert any("disallow_in_graph" in reason for reason in breaks_of(fn, X))
        check(fn, fn, X)
    finally:
        torch._dynamo.allow_in_graph(torch.sub)
    assert breaks_of(fn, X) == []


def test_comptime_does_nothing_at_run_time_and_may_ask_for_a_break():
    comptime = pytest.importorskip("torch._dynamo.comptime").comptime

    def fn(x):
        y = x + 1
        comptime(lambda ctx: ctx.print_graph())
        comptime.print_bt()
        return y * 2

    check(fn, lambda x: (x + 1) * 2, X, fullgraph=True)
    assert any("graph_break" in reason for reason in breaks_of(lambda x: (x.sin(), comptime.graph_break(), x.cos()), X))


class Noted:
    calls = 0

    def note(self, x):
        Noted.calls += 1
        open("/dev/null").close()


noted = Noted()


def logged(x):
    Noted.calls += 1
    open("/dev/null").close()


@pytest.mark.parametrize("ignored", [logged, noted.note, Noted.note], ids=["function", "bound method", "method"])
def test_functions_that_the_program_ignores_are_not_called(ignored):
    Noted.calls = 0

    def fn(x):
        y = x * 2
        ignored(y) if ignored is not Noted.note else noted.note(y)
        return y + 1

    torch._dynamo.config.ignore_logging_functions.add(ignored)
    try:
        check(fn, lambda x: x * 2 + 1, X, fullgraph=True)
    finally:
        torch._dynamo.config.ignore_logging_functions.discard(ignored)
    assert Noted.calls == 0
    burnish.compile(fn)(X)
    assert Noted.calls == 1


@pytest.mark.skipif(not hasattr(torch._dynamo, "patch_dynamo_config"), reason="this torch has no such context")
@pytest.mark.parametrize("breaks", [False, True])
def test_a_context_of_dynamos_settings_is_entered_and_left_on_every_call(breaks):
    seen = []

    @torch._dynamo.disable
    def look():
        seen.append(torch._dynamo.config.capture_scalar_outputs)

    def fn(x):
        with torch._dynamo.patch_dynamo_config(capture_scalar_outputs=True):
            y = x.sin()
            if breaks:
                look()
        return y * 2

    check(fn, lambda x: x.sin() * 2, X, fullgraph=not breaks)
    assert seen == [True] * 3 * breaks and torch._dynamo.config.capture_scalar_outputs is False


@pytest.mark.parametrize("name", ["disable_nested_graph_breaks", "dont_skip_tracing"])
def test_a_function_under_such_a_context_is_part_of_the_graph(name):
    decorator = getattr(torch._dynamo, name, None)
    if decorator is None:
        pytest.skip("this torch has no such decorator")
    inner = decorator(lambda x: x.sin())
    check(lambda x: inner(x) * 2, lambda x: x.sin() * 2, X, fullgraph=True)
