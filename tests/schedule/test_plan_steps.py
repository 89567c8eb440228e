"""Plans: shared buffers of concatenations, kernels launched together, split reductions."""

import pytest

from burnish.ops.target_record import CPU
from burnish.schedule.fusion.horizontal_fusion import made_by, used_by
from burnish.schedule.fusion.split_reductions import split_reductions
from burnish.schedule.loops.build_kernel import Launch
from burnish.schedule.memory.concat_in_place import concat_in_place
from burnish.schedule.memory.liveness import concat_buffers_in
from burnish.schedule.pipeline import make_plan
from burnish.schedule.plan_steps import MakeView

from ..ir.parse_graph import parse_graph

GROWN = """
graph(x: f32[64, 16], y: f32[64, 16])
  cat = aten.cat.default [x, y], 1 : f32[64, 32]
  a = aten.exp.default cat : f32[64, 32]
  s = sum a, (1,) : f32[64, 1]
  b = aten.div.Tensor cat, s : f32[64, 32]
  cat_1 = aten.cat.default [x, y, b], 1 : f32[64, 64]
  c = aten.exp.default cat_1 : f32[64, 64]
  t = sum c, (1,) : f32[64, 1]
  d = aten.div.Tensor cat_1, t : f32[64, 64]
  cat_2 = aten.cat.default [x, y, b, d], 1 : f32[64, 128]
  e = aten.exp.default cat_2 : f32[64, 128]
  return e
"""


def launches(plan):
    return [step for step in plan.steps if isinstance(step, Launch)]


def assembled(graph):
    return [node for node in graph.nodes if node.op.name == "assembled"]


SUMMED_LATE = """
graph(x: f32[64, 48], w: f32[48, 32], v: f32[32, 48])
  y = aten.mm.default x, w : f32[64, 32]
  z = aten.mm.default y, v : f32[64, 48]
  e = aten.exp.default y : f32[64, 32]
  s = sum y, (0,) : f32[1, 32]
  t = sum z, (0,) : f32[1, 48]
  return z, e, s, t
"""


def test_reductions_do_not_wait_for_a_library_call():
    graph = parse_graph(SUMMED_LATE.replace("e = aten.exp.default y : f32[64, 32]\n", "").replace("z, e, s", "z, s"))
    kinds = [
        "".join(step.kernel.name) if isinstance(step, Launch) else "call"
        for step in make_plan(graph).steps
        if not isinstance(step, MakeView)
    ]
    assert kinds == ["call", "s", "call", "t"]


def test_computations_beyond_the_sum_keep_their_place():
    kinds = [
        "loops" if isinstance(step, Launch) else "call"
        for step in make_plan(parse_graph(SUMMED_LATE)).steps
        if not isinstance(step, MakeView)
    ]
    assert kinds[:2] == ["call", "call"]


def test_growing_concatenations_share_a_buffer():
    graph = concat_in_place(parse_graph(GROWN))
    assert [len(node.args[0]) for node in assembled(graph)] == [2, 3, 4]
    assert [node.args[1] for node in assembled(graph)] == [(0, 16), (0, 16, 32), (0, 16, 32, 64)]
    assert all(node.results[0].type.stride == (128, 1) for node in assembled(graph))


def test_part_is_written_once_for_all():
    graph = concat_in_place(parse_graph(GROWN))
    assert sum(node.op.name == "restride" for node in graph.nodes) == 4


def test_only_parts_are_in_their_shared_buffer():
    plan = make_plan(parse_graph(GROWN))
    ((host, places),) = concat_buffers_in(plan.graph).items()
    for value, offset in places.items():
        assert plan.offsets[value] == plan.offsets[host] + offset
    end = plan.offsets[host] + host.type.bytes
    others = [value for value in plan.offsets if value not in places]
    assert all(plan.offsets[v] + v.type.bytes <= plan.offsets[host] or plan.offsets[v] >= end for v in others)


def test_no_kernel_reads_the_shared_buffer_that_it_writes():
    for launch in launches(make_plan(parse_graph(GROWN))):
        read = {value for at, value in enumerate(launch.buffers) if at not in launch.kernel.stored}
        parts = {
            part
            for value in read
            if value.node is not None and value.node.op.name == "assembled"
            for part in value.node.args[0]
        }
        assert parts.isdisjoint(made_by(launch))


def test_two_concatenated_values_have_no_shared_buffer():
    text = GROWN.replace(
        "cat_2 = aten.cat.default [x, y, b, d], 1 : f32[64, 128]",
        "cat_2 = aten.cat.default [y, b, d], 1 : f32[64, 112]",
    ).replace("f32[64, 128]", "f32[64, 112]")
    graph = parse_graph(text)
    assert concat_in_place(graph) is graph


def test_outputs_have_their_own_memory():
    graph = concat_in_place(parse_graph(GROWN.replace("return e", "return e, cat_2, cat_1")))
    assert not assembled(graph)


TWO = """
graph(x: f32[64, {n}], y: f32[10, {n}])
  a = aten.exp.default x : f32[64, {n}]
  b = aten.exp.default y : f32[10, {n}]
  return a, b
"""


def test_small_kernels_start_together():
    (launch,) = launches(make_plan(parse_graph(TWO.format(n=32))))
    assert [loop.extents for loop in launch.kernel.loops] == [(64, 32), (10, 32)]
    assert {value.name for value in made_by(launch)} == {"a", "b"}
    assert {value.name for value in used_by(launch)} == {"a", "b", "x", "y"}


def test_large_kernels_start_by_themselves():
    assert len(launches(make_plan(parse_graph(TWO.format(n=CPU.most_together // 64))))) == 2


def test_kernels_that_need_one_another_start_one_after_the_other():
    plan = make_plan(
        parse_graph("""
graph(x: f32[64, 32])
  a = sum x, (1,) : f32[64, 1]
  b = sum a, (0,) : f32[1, 1]
  return b
""")
    )
    assert len(launches(plan)) == 2


LONG = """
graph(x: f32[{rows}, 64, 2048])
  a = {op} x, (1, 2) : f32[{rows}, 1, 1]
  return a
"""


@pytest.mark.parametrize("op", ["sum", "max", "prod"])
def test_long_rows_are_reduced_in_parts(op):
    graph = split_reductions(parse_graph(LONG.format(rows=2, op=op)))
    shapes = [node.results[0].shape for node in graph.nodes if node.op.name == op]
    assert shapes == [(2, 32, 1, 1), (2, 1, 1, 1)] or shapes == [(2, 1, 64, 1), (2, 1, 1, 1)]
    assert graph.outputs[0].shape == (2, 1, 1)


def test_many_rows_are_not():
    graph = parse_graph(LONG.format(rows=16, op="sum"))
    assert split_reductions(graph) is graph


COLUMNS = """
graph(x: f32[{rows}, 96])
  a = sum x, (0,) : f32[1, 96]
  return a
"""


def test_long_columns_are_reduced_in_parts():
    graph = split_reductions(parse_graph(COLUMNS.format(rows=4096)))
    assert [node.results[0].shape for node in graph.nodes if node.op.name == "sum"] == [(64, 1, 96), (1, 1, 96)]


def test_short_columns_are_not():
    graph = parse_graph(COLUMNS.format(rows=256).replace("96", "512"))
    assert split_reductions(graph) is graph
