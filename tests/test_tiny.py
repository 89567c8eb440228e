"""Burnish in two minutes: the tests a newcomer reads first. They run in seconds.

`burnish.compile` returns a function that does what yours does. The first call runs yours and records its torch
operations as a graph. Later calls run that graph, as long as everything that the recording relied on still holds.
"""

import pytest
import torch

import burnish


def test_compiled_function_gives_eagers_results():
    def fn(x, y):
        return torch.sin(x) + torch.cos(y)

    compiled = burnish.compile(fn)
    for _ in range(3):  # the first call traces, the others run the traced graph
        x, y = torch.randn(3), torch.randn(3)
        torch.testing.assert_close(compiled(x, y), fn(x, y))


def test_decorator_does_the_same():
    @burnish.compile
    def fn(x):
        return x * 2

    assert torch.equal(fn(torch.ones(2)), torch.full((2,), 2.0))


def test_modules_stay_modules():
    module = torch.nn.Linear(3, 2)
    compiled = burnish.compile(module)
    x = torch.randn(4, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), module(x))
    assert compiled.weight is module.weight
    compiled(x).sum().backward()
    assert module.weight.grad is not None


def test_backend_sees_the_graph():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward  # or anything else to call with the same inputs

    compiled = burnish.compile(lambda x: torch.relu(x) + 1, backend=backend)
    compiled(torch.randn(3))
    (graph,) = graphs
    assert [node.name for node in graph.graph.nodes] == ["x", "relu", "add", "output"]


def test_guards_detect_changes_and_compile_again():
    class Scale:
        factor = 2.0

    scale, graphs = Scale(), []
    compiled = burnish.compile(lambda x: x * scale.factor, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    x = torch.ones(2)
    for factor in (2.0, 3.0, 2.0, 3.0):
        scale.factor = factor
        assert torch.equal(compiled(x), x * factor)
    assert len(graphs) == 2, "for the first value, and for any: the graph of the second takes the number as an input"


def branching(x):
    y = x * 2
    if y.sum() > 0:  # Python needs to see the data here: the graph ends, and the next one begins behind it
        return y
    return -y


def test_branch_on_data_is_a_break_and_still_right():
    compiled = burnish.compile(branching)
    for x in (torch.ones(2), -torch.ones(2), torch.ones(2)):
        assert torch.equal(compiled(x), branching(x))


def test_explain_says_where_and_why():
    output = burnish.explain(branching)(torch.ones(2))
    assert output.graph_break_count == 1
    assert "if y.sum() > 0:" in str(output)
    assert "What to do" in str(output)


def test_fullgraph_turns_a_break_into_an_error():
    with pytest.raises(burnish.Unsupported, match="Python control flow depends on a tensor's value"):
        burnish.compile(branching, fullgraph=True)(torch.ones(2))


def test_python_goes_on_as_it_does_in_eager(capsys):
    log = []

    @burnish.compile
    def fn(x, names):
        for i, name in enumerate(names):
            x = x + i
            log.append(name)
        print("done with", len(names))
        try:
            return x[5]
        except IndexError:
            return x

    for i in range(3):
        assert torch.equal(fn(torch.zeros(2), ["a", "b"]), torch.ones(2))
        assert log == ["a", "b"] * (i + 1)
    assert capsys.readouterr().out == "done with 2\n" * 3


def test_exported_graph_goes_into_a_file_and_back(tmp_path):
    module = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    burnish.export(module, (x,)).save(tmp_path / "linear")
    assert torch.equal(burnish.load(tmp_path / "linear")(x), module(x))
