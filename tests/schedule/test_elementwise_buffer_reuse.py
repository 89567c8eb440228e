"""Elementwise buffer reuse: a result overwrites only the same element of an operand without other readers."""

import pytest

from burnish.schedule.loops.build_kernel import Launch
from burnish.schedule.pipeline import make_plan

from ..ir.parse_graph import parse_graph

SIDE = "f32[64, 64]"
PROGRAM = f"""
graph(x: {SIDE}, w: {SIDE})
  s = sum x, (1,) : f32[64, 1]
  a = aten.div.Tensor x, s : {SIDE}
  t = sum a, (0,) : f32[1, 64]
  b = aten.div.Tensor a, t : {SIDE}
  u = sum b, (1,) : f32[64, 1]
  c = aten.div.Tensor b, u : {SIDE}
  {{body}}
"""


def plan_of(body):
    return make_plan(parse_graph(PROGRAM.format(body=body)))


def over(body):
    return {value.name: below.name for value, below in plan_of(body).in_place.items()}


def test_elementwise_results_reuse_the_buffer_of_their_operand():
    plan = plan_of(f"""v = sum c, (0,) : f32[1, 64]
  d = aten.div.Tensor c, v : {SIDE}
  return d""")
    assert "d" in {value.name for value in plan.in_place}
    d, below = next((value, below) for value, below in plan.in_place.items() if value.name == "d")
    last = plan.steps[-1]
    assert isinstance(last, Launch) and d in last.buffers and below not in last.buffers
    assert not any(value in plan.offsets for value in (d, below))  # it is made for the output
    assert f"d is in place of {below}" in str(plan)


RESHAPED = """c1 = view c, reshape[4096] : f32[4096]
  v = sum c1, (0,) : f32[1]
  d = aten.div.Tensor c1, v : f32[4096]
  {rest}"""


def test_buffers_are_reused_across_shapes_except_by_outputs():
    assert "d" not in over(RESHAPED.format(rest="return d"))
    plan = plan_of(
        RESHAPED.format(
            rest="""e = aten.cumsum.default d, 0 : f32[4096]
  return e"""
        )
    )
    assert any(value.shape == (4096,) and below.shape == (64, 64) for value, below in plan.in_place.items())


@pytest.mark.parametrize(
    "body",
    [
        # read by another kernel afterwards
        f"""v = sum c, (0,) : f32[1, 64]
  d = aten.div.Tensor c, v : {SIDE}
  v1 = sum d, (1,) : f32[64, 1]
  e = aten.mul.Tensor c, v1 : {SIDE}
  return d, e""",
        # returned
        f"""v = sum c, (0,) : f32[1, 64]
  d = aten.div.Tensor c, v : {SIDE}
  return d, c""",
        # read from elsewhere
        f"""c1 = view c, permute[1, 0] : f32[64, 64]{{1, 64}}
  v = sum c1, (1,) : f32[64, 1]
  d = aten.div.Tensor c1, v : {SIDE}
  return d""",
    ],
)
def test_nothing_else_reuses_a_buffer(body):
    assert "d" not in over(body)


def test_inputs_stay_as_they_are():
    assert not {"x", "w"} & set(
        over(f"""v = sum c, (0,) : f32[1, 64]
  d = aten.div.Tensor w, v : {SIDE}
  return d""").values()
    )
