"""Every pass preserves what a graph computes: outputs and writes to inputs.

Graphs are run node by node with eager kernels before and after each pass. Results are equal to the last bit, but for
passes that compute the same in another way: decompositions, and folded weights. Those run in float64 and must agree to
nearly all of its digits.
"""

import pytest
import torch

from burnish.ir.graph import Graph
from burnish.ir.graph_interpreter import interpret
from burnish.ir.untraceable_graph import Untraceable
from burnish.ir.verifier import verify
from burnish.runtime.eager.eager_primitives import FUNCTIONS
from burnish.schedule.library.choose_calls import choose_calls
from burnish.schedule.rewrites.fold_constants import fold_constants

from ..golden.cases import Case, all_cases
from ..golden.stages import PASSES, captured, copies, example, function, lower, lowered
from ..native.fuzz.generate import generate
from .parse_graph import parse_graph

ROUNDS_DIFFERENTLY = {"decompose", "fold_batch_norm", "fuse_dequantization"}
CLOSE = {"rtol": 1e-12, "atol": 1e-12}
"""In float64. A quotient of integers is in float32, and compared as that."""
FUZZED = 25

PYTHON = [case for case in all_cases() if case.is_python]
GRAPHS = [case for case in all_cases() if not case.is_python]


def results(graph: Graph, inputs: list, constants: list) -> list:
    """Outputs, then the inputs as they are afterwards."""
    inputs, constants = copies(inputs), copies(constants)
    torch.manual_seed(0)
    return [*interpret(graph, [*inputs, *constants], FUNCTIONS), *inputs]


def assert_same(stage: str, wanted: list, found: list) -> None:
    assert len(wanted) == len(found)
    for number, (a, b) in enumerate(zip(wanted, found, strict=True)):
        limits = CLOSE if getattr(a, "dtype", None) is torch.float64 else {}
        limits = limits if stage in ROUNDS_DIFFERENTLY else {"rtol": 0, "atol": 0}
        where = f"{stage}, result {number}: "
        torch.testing.assert_close(b, a, equal_nan=True, msg=lambda text, where=where: where + text, **limits)


def in_doubles(args: tuple) -> list:
    return [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args]


def in_double(text: str) -> str:
    return text.replace("f32[", "f64[").replace("torch.float32", "torch.float64")


def check(stages: list[tuple[str, Graph]], inputs: list, constants: list) -> None:
    (_, traced), *later = stages
    wanted = results(traced, inputs, constants)
    for stage, graph in later:
        found = results(graph, inputs, constants)
        assert_same(stage, wanted, found)
        wanted = found


@pytest.mark.parametrize("case", PYTHON, ids=lambda case: f"{case.stage}-{case.name}")
def test_passes_preserve_results_of_a_golden_program(case: Case):
    try:
        made = lowered(in_double(case.program))
    except Untraceable:
        pytest.skip("left to eager")
    check(made.stages, made.inputs, made.constants)


@pytest.mark.parametrize("case", PYTHON, ids=lambda case: f"{case.stage}-{case.name}")
def test_trace_preserves_results_of_the_program(case: Case):
    fn, types = function(case.program)
    args = [example(text, k) for k, text in enumerate(types.values())]
    try:
        ((gm, inputs),) = captured(fn, tuple(copies(args)))
        made = lower(gm, inputs, "trace")
    except Untraceable:
        pytest.skip("left to eager")
    torch.manual_seed(0)
    wanted = gm.forward(*copies(inputs))
    found = results(made.stages[0][1], inputs, made.constants)
    assert_same("trace", list(wanted), found[: len(wanted)])


@pytest.mark.parametrize("case", GRAPHS, ids=lambda case: f"{case.stage}-{case.name}")
def test_pass_preserves_results_of_a_golden_graph(case: Case):
    graph = parse_graph(in_double(case.program))
    inputs = [example(str(value.type), k) for k, value in enumerate(graph.inputs)]
    if case.stage == "fold_constants":
        parts = fold_constants(graph)
        if parts is None:
            return
        once, every_call = parts
        made = interpret(once, copies(inputs), FUNCTIONS)
        assert_same(case.stage, results(graph, inputs, []), results(every_call, [*inputs, *made], [])[: -len(made)])
    else:
        assert_same(case.stage, results(graph, inputs, []), results(PASSES[case.stage](graph), inputs, []))


def test_chosen_library_calls_compute_the_product():
    """They are made for float32, and may add in another order."""
    graph = parse_graph("""
        graph(x: f32[8, 32], w: f32[16, 32] state, b: f32[16] state)
          y = linear x, w, b, None, None : f32[8, 16]
          z = aten.gelu.default y : f32[8, 16]
          return z
    """)
    chosen = choose_calls(graph)
    assert {node.op.name for node in chosen.nodes} & {"run"}
    verify(chosen, "choose_calls", graph)
    inputs = [example(str(value.type), k) for k, value in enumerate(graph.inputs)]
    torch.testing.assert_close(results(chosen, inputs, []), results(graph, inputs, []))


@pytest.mark.parametrize("seed", range(FUZZED))
def test_passes_preserve_results_of_a_random_program(seed: int):
    program = generate(seed)
    fn, args = program.function(torch.float64), in_doubles(program.arguments())
    try:
        fn(*copies(args))
    except RuntimeError as error:
        pytest.skip(f"no program of float64: {error}")
    ((gm, inputs),) = captured(fn, tuple(args))
    try:
        made = lower(gm, inputs)
    except Untraceable:
        pytest.skip("left to eager")
    check(made.stages, made.inputs, made.constants)
