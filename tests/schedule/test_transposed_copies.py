"""Transposed copies are tiled, in loops without reductions."""

import pytest

from burnish.schedule.loops.build_kernel import Launch
from burnish.schedule.pipeline import make_plan

from ..ir.parse_graph import parse_graph

COPY_AND_SUM = """
graph(x: f32[{rows}, 512])
  t = view x, permute[1, 0] : f32[512, {rows}]{{1, 512}}
  c = aten.clone.default t, memory_format=torch.contiguous_format : f32[512, {rows}]
  s = sum x, (0,) : f32[1, 512]
  return c, s
"""

SUM_OF_WHAT_IS_TURNED = """
graph(x: f32[256, 512])
  t = view x, permute[1, 0] : f32[512, 256]{1, 512}
  y = aten.exp.default t : f32[512, 256]{1, 512}
  s = sum y, (1,) : f32[512, 1]
  c = aten.div.Tensor y, s : f32[512, 256]
  return c
"""

ALONG_BOTH = """
graph(x: f32[256, 512], z: f32[512, 256])
  t = view x, permute[1, 0] : f32[512, 256]{1, 512}
  c = aten.add.Tensor t, z : f32[512, 256]
  s = sum c, (1,) : f32[512, 1]
  return c, s
"""


def loops(text):
    """One may start with another: only the nests count."""
    steps = make_plan(parse_graph(text)).steps
    return [loop for step in steps if isinstance(step, Launch) for loop in step.kernel.loops]


@pytest.mark.parametrize("rows,count", [(256, 2), (4, 1)])
def test_a_transposed_copy_is_fused_with_sums_only_if_it_is_small(rows, count):
    assert len(loops(COPY_AND_SUM.format(rows=rows))) == count


def test_a_transposed_copy_waits_for_the_sums_it_reads():
    assert len(loops(SUM_OF_WHAT_IS_TURNED)) == 2


def test_operand_also_read_along_the_result_stays_with_its_sum():
    assert len(loops(ALONG_BOTH)) == 1
