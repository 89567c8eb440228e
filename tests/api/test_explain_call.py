"""`explain`: one real run of a function and the report of it."""

import contextlib
import io
import re

import pytest
import torch

import burnish

from .recording_backend import Recording, operations

X = torch.randn(4)


def branching(x):
    y = x.sin()
    if y.sum() > 0:
        return y * 2
    return y * 3


def test_fields_are_torchs():
    output = burnish.explain(branching)(X)
    assert isinstance(output, burnish.ExplainOutput)
    assert (output.graph_count, output.graph_break_count, output.op_count) == (2, 1, 4)
    assert len(output.graphs) == output.graph_count
    assert [operations(graph) for graph in output.graphs] == [["sin", "sum", "gt"], ["mul"]]
    assert [len(ops) for ops in output.ops_per_graph] == [3, 1]
    assert output.break_reasons[0].graph_break
    assert output.break_reasons[0].user_stack[-1].line == "if y.sum() > 0:"
    assert any(re.match(r"x is a Tensor of float32\[4\] on cpu", guard) for guard in output.out_guards)
    assert set(output.compile_times) == {"trace", "compile"}
    assert all(seconds > 0 for seconds in output.compile_times.values())


def test_each_trace_of_a_branch_shows_its_one_break():
    for x in (torch.ones(4), -torch.ones(4)):
        output = burnish.explain(branching)(x)
        assert (output.graph_count, output.graph_break_count) == (2, 1)


def test_explain_neither_uses_nor_stores_compiled_code():
    recording = Recording()
    compiled = burnish.compile(branching, backend=recording)
    compiled(X)
    for _ in range(2):
        assert burnish.explain(compiled)(X).graph_count == 2
    assert len(recording.graphs) == 2
    compiled(X)
    assert len(recording.graphs) == 2


def test_a_break_in_a_called_function_shows_the_way_to_it():
    def inner(x):
        return x.tolist()  # more numbers than a graph reads one by one

    def outer(x):
        return inner(torch.cat([x, x, x])), x * 2

    (reason,) = burnish.explain(outer)(X).break_reasons
    assert [frame.name.rpartition(".")[2] for frame in reason.user_stack] == ["outer", "inner"]
    assert "return x.tolist()" in reason.render() and "called from" in reason.render()


def test_breaks_in_a_loop_that_share_their_continuation_are_reported_once():
    def fn(x):
        for _ in range(5):
            x = x * 2
            burnish.graph_break()
        return x

    output = burnish.explain(fn)(X)
    assert output.graph_break_count <= 2 + 5
    assert torch.equal(burnish.compile(fn, backend="eager")(X), X * 32)


def test_modules_methods_and_callables_are_explained():
    module = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
    for fn in (module, burnish.compile(module), module.forward, lambda x: module(x)):
        output = burnish.explain(fn)(X)
        assert (output.graph_count, output.graph_break_count, output.op_count) == (1, 0, 2)
    assert burnish.explain(torch.sin)(X).op_count == 1


def test_guards_name_values_as_the_user_would():
    module = torch.nn.Sequential(torch.nn.Linear(4, 2))
    module.scale = 2.0
    output = burnish.explain(lambda x: module(x) * module.scale)(X)
    text = "\n".join(output.out_guards)
    assert "module.scale == 2.0" in text or ".scale == 2.0" in text
    assert "<Source" not in text and "Guard(" not in text


def test_function_without_torch_operations_has_no_graph():
    output = burnish.explain(lambda x: x)(X)
    assert (output.graph_count, output.graph_break_count, output.op_count) == (0, 0, 0) or output.op_count == 0
    assert str(output)


def test_disabled_function_is_reported_to_run_eagerly():
    @burnish.disable(reason="for a reason")
    def hidden(x):
        return x + 1

    output = burnish.explain(hidden)(X)
    assert (output.graph_count, output.graph_break_count) == (0, 0)
    assert "Not compiled" in str(output) and "for a reason" in str(output)


def test_stance_does_not_change_the_explanation():
    with burnish.set_stance("force_eager"):
        assert burnish.explain(branching)(X).graph_count == 2


def test_exception_of_the_function_is_its_own():
    def fails(x):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        burnish.explain(fails)(X)


def test_function_is_run_once_with_its_effects():
    printed = io.StringIO()

    def fn(x):
        print("run")
        return x + 1

    with contextlib.redirect_stdout(printed):
        burnish.explain(fn)(X)
    assert printed.getvalue() == "run\n"


def test_printing_reads_like_a_report():
    text = str(burnish.explain(branching)(X))
    assert text.startswith("2 graphs, 1 graph break, 4 operations, ")
    for part in (
        "Break 1 of 1",
        "if y.sum() > 0:",
        "What to do",
        "Graph 1 of 2: 3 operations",
        "sin = x.sin()",
        "Guards: the graphs are used again while these hold",
    ):
        assert part in text
    page = burnish.explain(branching)(X).html()
    assert page.startswith("<!doctype html>") and "if y.sum() &gt; 0:" in page
