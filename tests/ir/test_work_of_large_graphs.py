"""The work of lowering grows with the graph, and not faster."""

import operator

import torch

from burnish.ir.graph import Graph, Write
from burnish.lower.passes.unalias_outputs import unalias_outputs
from burnish.lower.trace.trace_to_aten import trace
from burnish.ops.operator_record import lookup
from burnish.tensors.tensor_types import TensorType

from ..count_instructions import instructions

NEG = lookup(torch.ops.aten.neg.default)
TYPE = TensorType.contiguous((4,), torch.float32)


def step(count: int) -> Graph:
    """Writes to all of its inputs, as an optimizer does."""
    graph = Graph()
    inputs = [graph.input(TYPE, "x") for _ in range(count)]
    graph.writes = [Write(k, graph.add(NEG, (x,), {}, TYPE)) for k, x in enumerate(inputs)]
    return graph


def items_of_results(count: int) -> torch.fx.GraphModule:
    """Multiplies each item of one list by a number."""
    graph = torch.fx.Graph()
    x, number = graph.placeholder("x"), graph.placeholder("number")
    results = graph.call_function(torch._foreach_neg, ([x] * count,))
    items = []
    for k in range(count):
        item = graph.call_function(operator.getitem, (results, k))
        items.append(graph.call_method("mul", (item, number)))
    graph.output(tuple(items))
    return torch.fx.GraphModule({}, graph)


def test_unaliasing_the_outputs_of_an_optimizer_step():
    unalias_outputs(step(2), step(2), 0)
    small, large = step(50), step(400)
    work = instructions(lambda: unalias_outputs(large, large, 0))
    assert work < 10 * instructions(lambda: unalias_outputs(small, small, 0))


def test_tracing_the_items_of_a_list_beside_a_number():
    inputs = (torch.ones(4), 0.5)
    small, large = items_of_results(25), items_of_results(400)
    trace(small, inputs, False, (float,))
    work = instructions(lambda: trace(large, inputs, False, (float,)))
    assert work < 20 * instructions(lambda: trace(small, inputs, False, (float,)))
