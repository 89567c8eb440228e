"""The report of `explain`, which reads like torch's."""

import ast
import html.parser
import operator
from traceback import FrameSummary
from types import SimpleNamespace

import pytest
import torch

from burnish.report.explain_report import ExplainOutput, argument_text, census, index_text, list_operations
from burnish.report.text_layout import cut, duration, shorten


def graph_of(write):
    graph = torch.fx.Graph()
    graph.output(write(graph, graph.placeholder("x")))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def chain(length):
    def write(graph, x):
        for _ in range(length):
            x = graph.call_function(torch.sin, (x,))
        return x

    return graph_of(write)


def some_break(what="bool() of x > 0", line=3):
    """A break by shape only: the report must not need capture's class."""
    kind = SimpleNamespace(code="B101", title="control flow", why="Because <it> is so.", what_to_do="Use & enjoy.")
    stack = (
        SimpleNamespace(filename="train.py", line=80, function="step"),
        SimpleNamespace(filename="<memory>", line=line, function="forward"),
    )
    return SimpleNamespace(kind=kind, what=what, stack=stack, render=lambda: f"rendered {what}\n  at line {line}")


def test_the_fields_are_those_of_torch():
    graphs, found = [chain(2), chain(3)], some_break()
    output = ExplainOutput.build(graphs, [found], ["x.shape == (3,)"], {"capture": 0.5})
    assert output.graphs == graphs
    assert (output.graph_count, output.graph_break_count, output.op_count) == (2, 1, 5)
    assert output.ops_per_graph == [[torch.sin] * 2, [torch.sin] * 3]
    assert output.out_guards == ["x.shape == (3,)"]
    assert output.compile_times == {"capture": 0.5}


def test_a_break_reason_has_torchs_fields_and_renders_as_the_break_does():
    (reason,) = ExplainOutput.build([], [some_break()]).break_reasons
    assert reason.reason == "B101 control flow: bool() of x > 0"
    assert reason.graph_break is True
    assert all(isinstance(frame, FrameSummary) for frame in reason.user_stack)
    assert [(frame.filename, frame.lineno, frame.name) for frame in reason.user_stack] == [
        ("train.py", 80, "step"),
        ("<memory>", 3, "forward"),
    ]
    assert reason.render() == str(reason) == "rendered bool() of x > 0\n  at line 3"


def test_inputs_attributes_and_the_output_are_not_operations():
    def write(graph, x):
        added = graph.call_function(operator.add, (x, graph.get_attr("weight")))
        return graph.call_method("view", (graph.call_module("layer", (added,)), -1))

    root = torch.nn.Module()
    root.layer, root.weight = torch.nn.Linear(2, 2), torch.nn.Parameter(torch.ones(2))
    graph = torch.fx.Graph()
    graph.output(write(graph, graph.placeholder("x")))
    output = ExplainOutput.build([torch.fx.GraphModule(root, graph)], [])
    assert output.op_count == 3
    assert output.ops_per_graph == [[operator.add, "layer", "view"]]


def test_printing_gives_a_summary_the_breaks_and_the_graphs():
    output = ExplainOutput.build([chain(1), chain(2)], [some_break()], ["a", "b"], {"capture": 0.084, "kernels": 0.048})
    assert (
        str(output)
        == """\
2 graphs, 1 graph break, 3 operations, 2 guards; compiled in 132 ms (capture 84 ms, kernels 48 ms)

Break 1 of 1
  rendered bool() of x > 0
    at line 3

Graph 1 of 2: 1 operation (torch.sin ×1)
  sin = torch.sin(x)

Graph 2 of 2: 2 operations (torch.sin ×2)
  sin = torch.sin(x)
  sin_1 = torch.sin(sin)

Guards: the graphs are used again while these hold
  a
  b
"""
    )


def test_nothing_captured_is_one_plain_line():
    assert str(ExplainOutput.build([], [])) == "0 graphs, 0 graph breaks, 0 operations\n"


def test_a_long_graph_shows_its_beginning_and_end():
    lines = str(ExplainOutput.build([chain(100)], [])).splitlines()
    assert "  … 75 more operations" in lines
    assert lines[-1] == "  sin_99 = torch.sin(sin_98)"
    assert len(lines) < 30


def test_operations_read_as_python():
    def write(graph, x):
        call = graph.call_function
        a = call(torch.nn.functional.linear, (x, x), {"bias": None})
        b = call(operator.getitem, (a, (slice(None), None, slice(1, None), Ellipsis)))
        c = graph.call_method("view", (b, -1, 2))
        d = call(operator.matmul, (c, call(operator.neg, (c,))))
        e = call(torch.cat, ([d, d],), {"dim": 0})
        f = call(getattr, (e, "mT"))
        return call(torch.ops.aten.relu.default, (f,))

    lines = list_operations(graph_of(write))
    assert lines == [
        "linear = torch.nn.functional.linear(x, x, bias=None)",
        "getitem = linear[:, None, 1:, ...]",
        "view = getitem.view(-1, 2)",
        "neg = -view",
        "matmul = view @ neg",
        "cat = torch.cat([matmul, matmul], dim=0)",
        "getattr_1 = cat.mT",
        "relu_default = aten.relu.default(getattr_1)",
    ]
    for line in lines:
        ast.parse(line)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (slice(1, None, 2), "slice(1, None, 2)"),
        ((1,), "(1,)"),
        ({"a": [1, None]}, "{'a': [1, None]}"),
        (torch.float32, "torch.float32"),
        (torch.ones(2, 3), "tensor of float32[2, 3]"),
        (Ellipsis, "..."),
    ],
)
def test_arguments_read_as_python(value, text):
    assert argument_text(value) == text


@pytest.mark.parametrize(
    ("index", "text"), [(0, "0"), (slice(None, None, 2), "::2"), ((slice(1, 2),), "1:2,"), ((), "()"), (None, "None")]
)
def test_indices_read_as_between_brackets(index, text):
    assert index_text(index) == text


@pytest.mark.parametrize("key", ["example_value", "val", "tensor_meta"])
def test_the_type_of_a_result_is_shown_where_it_is_known(key):
    graph = chain(2)
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    node.meta[key] = torch.ones(2, 3, device="meta")
    assert list_operations(graph) == ["sin = torch.sin(x)      # float32[2, 3]", "sin_1 = torch.sin(sin)"]


def test_a_census_names_the_commonest_operations_first():
    def write(graph, x):
        for function in (torch.sin, torch.cos, torch.cos, torch.tan, torch.exp, torch.log, torch.abs, torch.neg):
            x = graph.call_function(function, (x,))
        return x

    assert census(graph_of(write)) == (
        "8 operations (torch.cos ×2, torch.sin ×1, torch.tan ×1, torch.exp ×1, torch.log ×1, 2 more kinds)"
    )


def test_an_overlong_line_is_cut():
    graph = graph_of(lambda graph, x: graph.call_function(torch.cat, ([x] * 200,)))
    (line,) = list_operations(graph)
    assert len(line) == 150 and line.endswith("…")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00004, "0.0 ms"),
        (0.0021, "2.1 ms"),
        (0.084, "84 ms"),
        (0.9996, "1.00 s"),
        (12.345, "12.35 s"),
        (250, "250 s"),
    ],
)
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


def test_leaving_out_never_costs_as_many_lines_as_it_saves():
    assert shorten(list("abcd"), 2, 1, "things") == list("abcd")
    assert shorten(list("abcde"), 2, 1, "things") == ["a", "b", "… 2 more things", "e"]
    assert shorten(list("abcde"), 2, 0, "things") == ["a", "b", "… 3 more things"]
    assert cut("abcdef", 4) == "abc…" and cut("abcd", 4) == "abcd"


class Balanced(html.parser.HTMLParser):
    """Tags close in order, and everything shown is collected."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read_page(page):
    reader = Balanced()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_shows_everything_escaped_and_fetches_nothing():
    output = ExplainOutput.build([chain(100)], [some_break("call of <lambda> & co")], ["x <= 3"], {"capture": 0.1})
    page = output.html()
    reader = read_page(page)
    text = "".join(reader.text)
    for shown in (
        "call of <lambda> & co",
        "Because <it> is so.",
        "Use & enjoy.",
        "train.py:80 in step",
        "sin_50 = torch.sin(sin_49)",
        "x <= 3",
        output.summary(),
    ):
        assert shown in text
    assert "<lambda>" not in page
    assert not any({"src", "href"} & set(attrs) or tag in ("script", "link") for tag, attrs in reader.tags)


def test_the_page_marks_the_line_among_its_neighbours(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("one\ntwo\nthree\nif a < b:\nfive\nsix\nseven\n")
    found = some_break(line=4)
    found.stack[1].filename = str(file)
    page = ExplainOutput.build([], [found]).html()
    assert '    3  three\n<span class="hit">    4  if a &lt; b:</span>\n    5  five' in page
    assert "seven" not in page and "one" not in page
    read_page(page)


def test_a_break_without_a_stack_still_has_its_place_on_the_page():
    found = some_break()
    found.stack = ()
    assert "control flow" in "".join(read_page(ExplainOutput.build([], [found]).html()).text)
