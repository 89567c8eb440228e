"""Printed graphs, types, constants and kernels are parsed back without loss."""

import math

import pytest
import torch
from bench.models import MODELS
from hypothesis import HealthCheck, given, settings

from burnish.ir.graph import Alias, Graph, Value
from burnish.ops.burnish_primitives import RUN
from burnish.ops.operator_record import lookup
from burnish.ops.scalar_ir import Access, cast, const, load
from burnish.schedule.loops.build_kernel import Launch
from burnish.schedule.loops.loop_ir import Kernel, Loop, Reduction, Stage, Store, print_kernel
from burnish.schedule.pipeline import make_plan
from burnish.tensors.tensor_types import TensorType

from ..codegen import example_kernels as examples
from ..codegen.random_kernels import elementwise, reducing
from ..golden.stages import captured, lower
from ..schedule.parse_loops import kernels_in, parse_kernel
from .parse_graph import ParseError, parse_graph, parse_type

F32 = TensorType.contiguous((2, 3), torch.float32)
LARGE = (
    "densenet121",
    "inception_v3",
    "resnet50",
    "efficientnet_b0",
    "swin_t",
    "convnext_tiny",
    "t5",
    "llama",
    "vit",
    "gpt2",
    "bert",
    "mobilenet_v2",
    "mobilenet_v3",
)
DRAWN = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in MODELS])
def test_every_stage_of_a_model_is_read_back(name):
    if name in LARGE or name == "resnet18":
        for library in ("transformers", "timm", "torchvision"):
            pytest.importorskip(library)
    model, args, kwargs = MODELS[name]()
    for gm, inputs in captured(model, args, kwargs):
        for stage, graph in lower(gm, inputs).stages:
            assert str(parse_graph(str(graph))) == str(graph), stage
        plan = make_plan(graph)
        kernels = [step.kernel for step in plan.steps if isinstance(step, Launch)]
        again = kernels_in(str(plan))
        assert [(k.loops, k.dtypes, k.stored) for k in again] == [(k.loops, k.dtypes, k.stored) for k in kernels]


CONSTANTS = [
    0,
    -1,
    2**63 - 1,
    True,
    None,
    0.0,
    -0.0,
    1e-05,
    1e300,
    0.1,
    math.inf,
    -math.inf,
    2.0,
    "none",
    "it's",
    'say "x" # no',
    "",
    1 + 2j,
    torch.float32,
    torch.bool,
    torch.strided,
    torch.channels_last,
    torch.preserve_format,
    torch.device("cpu"),
    torch.device("cuda", 1),
    torch.device("meta"),
    [],
    (),
    [1],
    (1,),
    [1, [2.5, (None, "a")]],
]


@pytest.mark.parametrize("constant", CONSTANTS, ids=repr)
def test_constant_is_parsed_back_unchanged(constant):
    for args, kwargs in (((constant,), {}), ((), {"option": constant})):
        graph = Graph()
        x = graph.input(F32, "x")
        graph.add(lookup(torch.ops.aten.clone.default), (x, *args), kwargs, F32)
        (node,) = parse_graph(str(graph)).nodes
        found = node.kwargs["option"] if kwargs else node.args[1]
        assert repr(found) == repr(constant) and type(found) is type(constant)


def test_nan_comes_back():
    graph = Graph()
    graph.add(lookup(torch.ops.aten.full.default), ([], math.nan), {}, TensorType((), (), torch.float32))
    assert math.isnan(parse_graph(str(graph)).nodes[0].args[1])


@pytest.mark.parametrize(
    "text",
    [
        "f32[2, 3]",
        "i64[]",
        "b8[0, 4]",
        "bf16[3, 2]{1, 3}",
        "f32[1]{7}",
        "f32[4]{0}",
        "u8[2]@cuda:0",
        "c64[2, 2]{1, 2}@cuda:1",
    ],
)
def test_type_comes_back(text):
    assert str(parse_type(text)) == text


def test_views_writes_aliases_and_state_come_back():
    text = """
graph(x: f32[4, 6], w: f32[6, 4] state)
  view = view x, slice[1: 5, -1, 6] reshape[2, 12] permute[1, 0] expand[3, 12, 2] diagonal[1, 2: -1, 1] : f32[3, 1]
  aten.add_.Tensor x, 1
  a, _, b = aten.native_layer_norm.default x, [6], None, None, 1e-05 : f32[4, 6], _, f32[4, 1]
  write x <- a
  return view, 3, alias(x), alias(x permute[1, 0]: f32[6, 4]{1, 6}), None
""".strip()
    graph = parse_graph(text)
    assert str(parse_graph(str(graph))) == str(graph)
    assert [type(out) for out in graph.outputs] == [Value, int, Alias, Alias, type(None)]
    assert [value.is_state for value in graph.inputs] == [False, True]
    assert graph.nodes[1].results == () and graph.nodes[2].results[1] is None
    assert graph.nodes[2].results[2].position == 2 and graph.writes[0].input == 0


def test_many_inputs_have_a_line_each():
    graph = Graph()
    for k in range(20):
        graph.input(F32, f"layer_{k}_weight", is_state=True)
    assert max(map(len, str(graph).splitlines())) < 60
    assert str(parse_graph(str(graph))) == str(graph)


def test_comments_are_passed_over():
    text = "# above\ngraph(x: f32[2])\n  # between\n  y = aten.exp.default x : f32[2]  # behind\n  return y"
    graph = parse_graph(text)
    assert [node.op.name for node in graph.nodes] == ["aten.exp.default"]


def test_names_are_given_once():
    graph = Graph()
    names = [graph.fresh_name(name) for name in ("x_1", "x", "x", "x", "x_1", "inf", "_", "None")]
    assert len(set(names)) == len(names) and not {"inf", "_", "None"} & set(names)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("graph(x: f32[2])\n  y = aten.exp.default z : f32[2]\n  return y", "no value called z"),
        ("graph(x: f32[2])\n  y = aten.expp.default x : f32[2]\n  return y", "no operator called aten.expp"),
        ("graph(x: f32[2])\n  y = nothing x : f32[2]\n  return y", "no operator called nothing"),
        ("graph(x: f32[2])\n  x = aten.exp.default x : f32[2]\n  return x", "two values called x"),
        ("graph(x: f33[2])\n  return x", "f33 is not a dtype"),
        ("graph(x: f32[2]{1, 1})\n  return x", "as many strides as sizes"),
        ("graph(x: f32[2])\n  y, z = aten.exp.default x : f32[2]\n  return y", "as many types"),
        ("graph(x: f32[2])\n  y = aten.exp.default x : f32[2]\n  write y <- x\n  return", "y is not an input"),
        ("graph(x: f32[2])\n  y = aten.exp.default x x : f32[2]\n  return", "expected ','"),
        ("graph(x: f32[2])\n  y = aten.to.dtype x, torch.nn : f32[2]\n  return", "not a constant of torch's"),
        ("graph(x: f32[2])\n  return x $", "not a word, number or mark"),
    ],
)
def test_error_says_what_is_wrong_and_where(text, why):
    with pytest.raises(ParseError, match=why) as error:
        parse_graph(text)
    assert "line " in str(error.value) and "^" in str(error.value)


def test_chosen_library_call_prints_by_name_and_is_refused():
    class Candidate:
        name = "a packed product"

    graph = Graph()
    x = graph.input(F32, "x")
    graph.outputs = [graph.add(RUN, (Candidate(), (x,)), {}, F32)]
    assert "run <a packed product>, (x,)" in str(graph)
    with pytest.raises(ParseError, match="<a packed product> is an object of the compiler"):
        parse_graph(str(graph))


# -- kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [
        examples.add(1003),
        examples.softmax(7, 500),
        examples.layer_norm(4, 96, "bf16"),
        examples.column_sum(100, 70),
        examples.transposed_copy(40, 50),
        examples.embedding(9, 33),
        examples.padded(4, 30, 2),
        examples.reduction("argmax", (4, 70), 1, (70, 1)),
    ],
    ids=lambda kernel: kernel.name,
)
def test_kernel_is_read_back(kernel):
    assert parse_kernel(print_kernel(kernel)) == kernel


@DRAWN
@given(drawn=elementwise())
def test_elementwise_kernel_by_chance_is_read_back(drawn):
    assert parse_kernel(print_kernel(drawn[0])) == drawn[0]


@DRAWN
@given(drawn=reducing())
def test_reducing_kernel_by_chance_is_read_back(drawn):
    assert parse_kernel(print_kernel(drawn[0])) == drawn[0]


@pytest.mark.parametrize(
    "value",
    [
        const(0.0, "f32"),
        const(-0.0, "f32"),
        const(math.inf, "f64"),
        const(-math.inf, "bf16"),
        const(math.nan, "f32"),
        const(1e-30, "f64"),
        const(True, "b8"),
        const(-5, "i64"),
        const(255, "u8"),
    ],
    ids=str,
)
def test_constant_of_a_kernel_comes_back_with_its_type(value):
    kernel = examples.elementwise("fill", value, (4,), ())
    assert parse_kernel(print_kernel(kernel)).loops[0].stages[0].stores[0].value is value


def test_equal_numbers_of_two_types_are_two_texts():
    """Code that identifies kernels by their text must see that."""
    texts = {examples.elementwise("f", cast(const(1.0, dtype).exp(), "f32"), (4,), ()).key for dtype in ("f32", "f64")}
    assert len(texts) == 2


def test_text_does_not_double_with_every_use():
    x = load("f32", Access(0, 0, (1,)))
    for _ in range(40):
        x = x * x
    kernel = examples.elementwise("powers", x, (4,), ("f32",))
    assert len(print_kernel(kernel)) < 3000
    assert parse_kernel(print_kernel(kernel)) == kernel


def test_origin_is_printed_above_and_parsed_back():
    stage = Stage((Reduction("sum", load("f32", Access(0, 0, ()))),))
    kernel = Kernel("sum", ("f32",), frozenset(), (Loop((), 0, (stage,)),), ("model.py:12  y = x.sum()", "two\nlines"))
    again = parse_kernel(print_kernel(kernel))
    assert again.origin == ("model.py:12  y = x.sum()", "two", "lines") and again.loops == kernel.loops


def test_store_with_a_mask_comes_back():
    index, mask = load("i64", Access(0, 0, (1,))), load("b8", Access(1, 0, (1,)))
    store = Store(Access(2, 3, (0,), (5,), True), const(1.0, "f32"), (index, mask))
    kernel = Kernel("scatter", ("i64", "b8", "f32"), frozenset({2}), (Loop((4,), 1, (Stage(stores=(store,)),)),))
    assert parse_kernel(print_kernel(kernel)) == kernel


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("b1[i0] = nothing(b0[i0])", "no operation called nothing"),
        ("b1[i0] = add(b0[i0])", "add of 1 operands"),
        ("b1[i0] = add(b0[i0], 1.0.f64)", "operands of other types"),
        ("b1[i0] = b2[i0]", "no buffer called b2"),
        ("b1[i3] = b0[i0]", "no variable called i3"),
        ("r1 = sum.f32 b0[i0]", "expected the reduction r0"),
        ("r0 = sum.i64 b0[i0]", "expected the reduction r0"),
        ("b1[i0] = t4", "no operation called t4"),
        ("b1[i0] = b0[1*@0]", "needs 1 indices"),
    ],
)
def test_error_in_a_kernel_quotes_the_line(statement, why):
    text = f"kernel f(b0: f32, b1: f32 out)\n  loop i0 < 4 rows\n    stage\n      {statement}"
    with pytest.raises(ParseError, match=why) as error:
        parse_kernel(text)
    assert "line 4" in str(error.value) and statement in str(error.value)
