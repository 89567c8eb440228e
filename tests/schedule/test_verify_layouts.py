"""A plan whose steps get layouts that they do not accept is refused, with the node's name."""

from dataclasses import replace

import pytest
import torch

from burnish.errors import InternalError
from burnish.ops.burnish_primitives import RUN
from burnish.schedule.layouts.verify_plan_layouts import faults_of_call
from burnish.schedule.library.autotune_library_calls import candidates
from burnish.schedule.library.call_specs import MatmulSpec
from burnish.schedule.pipeline import make_plan
from burnish.tensors.tensor_types import TensorType

from ..ir.parse_graph import parse_graph

PRODUCT = """
graph(a: f32[2, 3, 4], b: f32[2, 4, 5])
  e = aten.exp.default a : f32[2, 3, 4]
  y = aten.bmm.default e, b : f32[2, 3, 5]
  return y
"""

ATTENTION = """
graph(q: f32[1, 2, 6, 4]{})
  e = aten.exp.default q : f32[1, 2, 6, 4]{}
  y, _ = aten._scaled_dot_product_flash_attention_for_cpu.default e, e, e : f32[1, 2, 6, 4], _
  return y
"""


def turned(type):
    return replace(type, stride=tuple(reversed(TensorType.contiguous(type.shape[::-1], type.dtype).stride)))


def test_a_chosen_call_that_is_given_another_layout_is_refused():
    spec = MatmulSpec(*(TensorType.contiguous(shape, torch.float32) for shape in ((2, 3, 4), (2, 4, 5))))
    candidate = candidates(spec)[0]
    graph = parse_graph(PRODUCT)
    node = graph.nodes[1]
    node.op, node.args = RUN, (candidate, node.args)
    graph.nodes[0].results[0].type = turned(graph.nodes[0].results[0].type)
    with pytest.raises(InternalError, match=r"the call bmm takes a as f32\[2, 3, 4\], and is given .*\n(.*\n)*.*> y"):
        make_plan(graph)


def test_a_kernel_that_reads_rows_is_not_given_columns():
    stride = "{48, 24, 1, 6}"
    make_plan(parse_graph(ATTENTION.replace("{}", "")))
    with pytest.raises(InternalError, match="reads rows without gaps"):
        make_plan(parse_graph(ATTENTION.replace("{}", stride)))


@pytest.mark.parametrize("columns, is_refused", [(65, True), (64, False)])
def test_a_product_that_may_read_gaps_is_given_none(columns, is_refused):
    graph = parse_graph(f"""
    graph(a: bf16[33, {columns}]{{68, 1}}, b: bf16[{columns}, 5], c: bf16[33, 5])
      y = aten.addmm.default c, a, b, beta=0.5 : bf16[33, 5]
      return y
    """)
    found = "".join(why for node in graph.nodes for why in faults_of_call(node))
    assert ("reads the gaps between rows" in found) == is_refused


def test_a_kernel_without_a_contract_is_given_eagers_strides():
    graph = parse_graph(PRODUCT)
    graph.nodes[1].eager_strides = (12, 1, 3), (20, 5, 1)
    with pytest.raises(InternalError, match=r"takes e with the strides \(12, 1, 3\) alone"):
        make_plan(graph)


def test_candidates_return_their_declared_layout():
    for spec in (
        MatmulSpec(TensorType.of(torch.randn(2, 3, 4)), TensorType.of(torch.randn(2, 5, 4).mT)),
        MatmulSpec(TensorType.of(torch.randn(3, 4)), TensorType.of(torch.randn(5, 4).t())),
    ):
        tensors = [torch.empty_strided(type.shape, type.stride).normal_() for type in spec.inputs.values()]
        for candidate in candidates(spec):
            assert candidate.takes([TensorType.of(x) for x in tensors]) is None
            assert TensorType.of(candidate.run(*tensors)) == candidate.gives()[0], candidate
            others = [x.mT.contiguous().mT for x in tensors]
            assert candidate.takes([TensorType.of(x) for x in others]) is not None
