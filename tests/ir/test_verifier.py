"""The verifier accepts sound graphs and reports for unsound ones what is wrong, where, and after which pass."""

import pytest
import torch

from burnish import settings
from burnish.errors import InternalError
from burnish.ir.graph import Alias, Graph, Node, Value, Write
from burnish.ir.verifier import verify
from burnish.lower import pipeline
from burnish.lower.passes.unalias_outputs import why_not_unaliased
from burnish.ops.operator_record import NoRule, lookup
from burnish.tensors.tensor_types import TensorType

from ..golden.cases import all_cases
from ..golden.stages import captured
from .parse_graph import parse_graph

F32 = TensorType.contiguous((2, 3), torch.float32)
EXP, ADD = lookup(torch.ops.aten.exp.default), lookup(torch.ops.aten.add.Tensor)


def example() -> Graph:
    return parse_graph("""
        graph(x: f32[2, 3], w: f32[4, 3] state)
          a = aten.exp.default x : f32[2, 3]
          b = aten.add.Tensor a, x : f32[2, 3]
          t = view w, permute[1, 0] : f32[3, 4]{1, 3}
          c = aten.mm.default b, t : f32[2, 4]
          d = aten.sin.default c : f32[2, 4]
          write x <- b
          return d, alias(x)
    """)


def complaint(graph: Graph, before: Graph | None = None, strides: bool = False) -> str:
    with pytest.raises(InternalError) as error:
        verify(graph, "some pass", before, strides)
    assert error.value.stage == "some pass"
    return error.value.message


def test_sound_graph_is_let_through():
    verify(example(), "some pass", example(), strides=True)


@pytest.mark.parametrize(
    "case",
    [case for case in all_cases() if case.out.startswith("graph(")],
    ids=lambda case: f"{case.stage}-{case.name}",
)
def test_golden_graphs_are_sound(case):
    verify(parse_graph(case.out), case.stage)


def with_one_node(result: str, args: tuple, kwargs: dict, given=F32, target=torch.ops.aten.add.Tensor) -> Graph:
    graph = parse_graph(f"graph(x: f32[2, 3])\n  y = aten.exp.default x : {result}\n  return y")
    graph.inputs[0].type = given
    graph.nodes[0].op, graph.nodes[0].kwargs = lookup(target), kwargs
    graph.nodes[0].args, graph.nodes[0].operands = (graph.inputs[0], *args), (graph.inputs[0],)
    return graph


def test_a_node_is_not_taken_for_a_sound_one_that_differs_in_one_respect():
    ints, transposed = TensorType.contiguous((2, 3), torch.int64), TensorType((2, 3), (1, 2), torch.float32)
    for _ in range(2):
        verify(with_one_node("f32[2, 3]", (1,), {}), "some pass")
        verify(with_one_node("i64[2, 3]", (1,), {}, ints), "some pass")
        verify(with_one_node("f32[2, 3]", (1.0,), {}, ints), "some pass")
        verify(with_one_node("f32[2, 3]", (1,), {}, transposed), "some pass")
        assert "i64[2, 3]" in complaint(with_one_node("f32[2, 3]", (1,), {}, ints))
        assert "f32[2, 3]" in complaint(with_one_node("i64[2, 3]", (1.0,), {}, ints))
        assert "rule says f32[2, 3]{1, 2}" in complaint(with_one_node("f32[2, 3]", (1,), {}, transposed), strides=True)
        assert "no argument called beta" in complaint(with_one_node("f32[2, 3]", (1,), {"beta": 1}))
        verify(with_one_node("f32[2, 3]", (), {}, target=torch.ops.aten.linalg_matrix_exp.default), "some pass")
        assert "lacks" in complaint(with_one_node("f32[2, 3]", (), {}, target=torch.ops.aten.ormqr.default))
        assert "rule says b8" in complaint(with_one_node("f32[2, 3]", (1,), {}, target=torch.ops.aten.gt.Scalar))


def test_a_result_type_that_depends_on_a_setting_is_checked_under_each():
    ints = TensorType.contiguous((2, 3), torch.int64)
    verify(with_one_node("f32[2, 3]", (1.0,), {}, ints), "some pass")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert "rule says f64[2, 3]" in complaint(with_one_node("f32[2, 3]", (1.0,), {}, ints))
    finally:
        torch.set_default_dtype(before)


def test_a_rule_that_changes_is_asked_again(monkeypatch):
    verify(example(), "some pass")
    monkeypatch.setattr(EXP, "shape", lambda x: TensorType.contiguous((7,), torch.float32))
    assert "rule says f32[7]" in complaint(example())


def test_message_shows_the_node_between_its_neighbours():
    graph = example()
    graph.nodes[1].results[0].type = TensorType.contiguous((2, 4), torch.float32)
    message = complaint(graph)
    assert message.startswith("b has the type f32[2, 4], but its operator's rule says f32[2, 3]\n")
    lines = message.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["a", ">", "t", "c", "d"]


def test_value_that_is_made_later_is_found():
    graph = example()
    graph.nodes[0], graph.nodes[1] = graph.nodes[1], graph.nodes[0]
    assert "a is used before it is made" in complaint(graph)


def test_value_of_another_graph_is_found():
    graph = example()
    node = graph.nodes[1]
    graph.nodes[1] = Node(node.op, (node.args[0], example().inputs[0]), node.kwargs)
    graph.nodes[1].results = node.results
    assert "x is used before it is made, or belongs to another graph" in complaint(graph)


def test_name_given_twice_is_found():
    graph = example()
    graph.nodes[1].results[0].name = "a"
    assert "the name a is given to two values" in complaint(graph)


def test_result_that_belongs_to_another_node_is_found():
    graph = example()
    graph.nodes[1].results[0].node = graph.nodes[0]
    assert "b does not know that it is result 0 of this node" in complaint(graph)


@pytest.mark.parametrize(
    "type",
    [
        TensorType.contiguous((2, 3), torch.float64),
        TensorType.contiguous((3, 2), torch.float32),
        TensorType.contiguous((6,), torch.float32),
        TensorType.contiguous((2, 3), torch.float32, torch.device("meta")),
    ],
    ids=str,
)
def test_result_of_another_type_is_found(type):
    graph = example()
    graph.nodes[0].results[0].type = type
    assert f"a has the type {type}" in complaint(graph)


def test_strides_are_compared_where_they_are_promised():
    graph = example()
    graph.nodes[0].results[0].type = TensorType((2, 3), (1, 2), torch.float32)
    verify(graph, "some pass")
    assert "a has the type f32[2, 3]{1, 2}" in complaint(graph, strides=True)


def test_number_of_results_is_compared():
    graph = example()
    node = graph.nodes[4]
    node.results = (*node.results, Value(F32, "more", node, 1))
    assert "it has 2 results, but its operator's rule makes 1" in complaint(graph)


@pytest.mark.parametrize("arg", [torch.zeros(2), {"a": 1}, object(), [1, {2}], slice(1)], ids=lambda x: str(type(x)))
def test_constant_that_no_graph_may_hold_is_found(arg):
    graph = example()
    graph.nodes[1].args = (graph.nodes[1].args[0], arg)
    assert "not a constant that a graph may hold" in complaint(graph)


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [(1, {}, "lacks other"), (3, {}, "takes at most 2 arguments"), (2, {"beta": 1}, "no argument called beta")],
)
def test_arguments_are_those_of_the_schema(args, kwargs, why):
    graph = example()
    node = graph.nodes[1]
    node.args, node.kwargs = (graph.inputs[0],) * args, kwargs
    assert why in complaint(graph)


def test_arguments_that_the_shape_rule_refuses_are_found():
    graph = example()
    graph.nodes[2].args = (graph.inputs[1], 3)
    assert "the shape rule of view does not take its arguments" in complaint(graph)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda g: g.writes.append(Write(7, g.inputs[0])), "the input number 7, which does not exist"),
        (lambda g: g.writes.append(Write(0, g.inputs[0])), "x is written twice"),
        (lambda g: g.writes.append(Write(1, g.inputs[0])), "x: f32\\[2, 3\\] is written to w: f32\\[4, 3\\]"),
        (
            lambda g: g.writes.append(Write(1, Value(g.inputs[1].type, "w2"))),
            "w2, which is written to w, was never made",
        ),
        (lambda g: g.outputs.append(Value(F32, "lost")), "the output lost was never made"),
        (lambda g: g.outputs.append([Value(F32, "lost")]), "the output lost was never made"),
        (lambda g: g.outputs.append(torch.zeros(1)), "is not a constant"),
        (lambda g: g.outputs.append(Alias(9, None)), "alias of the input number 9"),
        (
            lambda g: g.outputs.append(Alias(0, TensorType.contiguous((6,), torch.float32))),
            "an output is an alias of x",
        ),
    ],
)
def test_ends_of_the_graph_are_checked(change, why):
    graph = example()
    change(graph)
    with pytest.raises(InternalError, match=why):
        verify(graph, "some pass")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda g: g.outputs.pop(), "there were 2 outputs, now there are 1"),
        (lambda g: g.outputs.reverse(), "the output number 0 was f32\\[2, 4\\] and is f32\\[2, 3\\] now"),
        (lambda g: setattr(g.outputs[0], "type", TensorType((2, 4), (1, 2), torch.float32)), "output number 0"),
        (lambda g: setattr(g.inputs[1], "is_state", False), "the inputs were changed"),
        (lambda g: g.inputs.append(Value(F32, "more")), "the inputs were changed: 2 became 3"),
    ],
)
def test_pass_may_not_change_observable_results(change, why):
    graph = example()
    change(graph)
    verify(graph, "some pass")
    with pytest.raises(InternalError, match=why):
        verify(graph, "some pass", example())


def test_pipeline_checks_every_pass_where_the_setting_asks_for_it(monkeypatch):
    def spoil(graph: Graph) -> Graph:
        graph.nodes[-1].results[0].type = TensorType.contiguous((9,), torch.float32)
        return graph

    ((gm, inputs),) = captured(lambda x: x.exp().sin(), (torch.zeros(3),))
    monkeypatch.setattr(pipeline, "PASSES", (*pipeline.PASSES, spoil))
    with settings.patch(check=False):
        pipeline.lower(gm, inputs)
    with settings.patch(check=True), pytest.raises(InternalError, match="'spoil': sin has the type f32\\[9\\]"):
        pipeline.lower(gm, inputs)


def test_one_gradient_as_two_tensors_in_one_memory_is_an_error():
    """Autograd would take both over, and add to both."""
    traced, kept, doubled, merged = map(
        parse_graph,
        (
            """
        graph(x: f32[2, 3])
          a = aten.exp.default x : f32[2, 3]
          t = aten.t.default a : f32[3, 2]{1, 3}
          b = aten.exp.default x : f32[2, 3]
          return t, t, b
        """,
            """
        graph(x: f32[2, 3])
          a = aten.exp.default x : f32[2, 3]
          t = view a, permute[1, 0] : f32[3, 2]{1, 3}
          b = aten.exp.default x : f32[2, 3]
          return t, t, b
        """,
            """
        graph(x: f32[2, 3])
          a = aten.exp.default x : f32[2, 3]
          t = view a, permute[1, 0] : f32[3, 2]{1, 3}
          u = view a, permute[1, 0] : f32[3, 2]{1, 3}
          b = aten.exp.default x : f32[2, 3]
          return t, u, b
        """,
            """
        graph(x: f32[2, 3])
          a = aten.exp.default x : f32[2, 3]
          t = view a, permute[1, 0] : f32[3, 2]{1, 3}
          return t, t, a
        """,
        ),
    )
    assert why_not_unaliased(kept, traced) is None
    assert why_not_unaliased(doubled, traced) == "u and t are two tensors in one memory, and in eager one: t"
    assert why_not_unaliased(merged, traced) == "a and t share memory, which b and t do not in eager"


def test_a_node_is_looked_at_again_when_a_switch_of_its_rule_changes():
    """The strides of a convolution depend on whether oneDNN computes it."""
    last = torch.empty(2, 4, 5, 5, 5).to(memory_format=torch.channels_last_3d)
    ones, zeros = [1, 1, 1], [0, 0, 0]
    graph = parse_graph(f"""
        graph(x: f32[2, 4, 5, 5, 5], w: f32[4, 4, 3, 3, 3])
          y = aten.convolution.default x, w, None, {ones}, {ones}, {ones}, False, {zeros}, 1 : f32[2, 4, 5, 5, 5]
          return y
    """)
    graph.inputs[0].type = graph.nodes[0].results[0].type = TensorType.of(last)
    verify(graph, "some pass", strides=True)
    with torch.backends.mkldnn.flags(enabled=False):
        assert "its operator's rule says" in complaint(graph, strides=True)


def test_a_node_that_a_rule_leaves_out_is_not_remembered(monkeypatch):
    graph = with_one_node("f32[2, 3]", (), {}, target=torch.ops.aten.exp.default)
    asked = []

    def rule(x):
        asked.append(x)
        raise NoRule

    monkeypatch.setattr(graph.nodes[0].op, "shape", rule)
    verify(graph, "some pass")
    verify(graph, "some pass")
    assert len(asked) == 2
