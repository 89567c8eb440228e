"""Collectives of torch.distributed as part of the graph, in a group of one process."""

import operator

import pytest
import torch
from torch import distributed

import burnish
from burnish.capture.breaks import CATALOG
from burnish.compiler.sink_collective_waits import delay_waits
from burnish.errors import Unsupported

if not distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

X = torch.arange(3.0)


@pytest.fixture(autouse=True)
def group():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def functional_collectives():
    from torch.distributed import _functional_collectives

    return _functional_collectives


def graph_of(fn, *args):
    graphs = []

    def backend(gm, examples):
        graphs.append(gm)
        return gm.forward

    found = burnish.compile(fn, backend=backend, fullgraph=True)(*args)
    (graph,) = graphs
    return found, [str(node.target) for node in graph.graph.nodes if node.op not in ("placeholder", "output")]


def reduced(x):
    y = x * 2
    distributed.all_reduce(y)
    return y + 1


def test_a_backend_is_handed_functional_operators_and_a_copy():
    found, targets = graph_of(reduced, X)
    calls = ["_c10d_functional.all_reduce", "_c10d_functional.wait_tensor", "copy_"]
    assert targets == [str(operator.mul), *calls, str(operator.add)]
    assert torch.equal(found, X * 2 + 1)


def test_the_result_is_read_after_the_wait():
    def fn(x):
        return functional_collectives().all_reduce(x, "sum", distributed.group.WORLD).sin()

    graphs = []
    burnish.compile(fn, backend=lambda gm, examples: graphs.append(gm) or gm.forward, fullgraph=True)(X)
    reduce, wait, sine = [node for node in graphs[0].graph.nodes if node.op not in ("placeholder", "output")]
    assert list(reduce.users) == [wait] and list(wait.users) == [sine]


def test_rank_and_size_of_a_group_are_constants():
    def fn(x):
        if distributed.is_initialized() and distributed.get_world_size(distributed.group.WORLD) == 1:
            return x + distributed.get_rank()
        return x

    assert graph_of(fn, X)[1] == [str(operator.add)]


def test_another_group_is_another_graph():
    def fn(x):
        y = x * 1
        distributed.all_reduce(y, group=held[0])
        return y

    graphs = []
    compiled = burnish.compile(fn, backend=lambda gm, examples: graphs.append(gm) or gm.forward, fullgraph=True)
    groups = [distributed.group.WORLD, distributed.new_group([0])]
    held = groups[:1]
    for held[0] in (groups[0], groups[0], groups[1], groups[0]):
        assert torch.equal(compiled(X), X)
    (first,), (second,) = (
        [node.args[2] for node in gm.graph.nodes if "all_reduce" in str(node.target)] for gm in graphs
    )
    assert [first, second] == [group.group_name for group in groups]


def test_a_call_whose_result_nothing_uses_still_communicates():
    def fn(x):
        functional_collectives().all_reduce(x, "sum", distributed.group.WORLD)
        return x + 1

    assert "_c10d_functional.all_reduce" in graph_of(fn, X)[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda y: distributed.broadcast(y, 0),
        lambda y: distributed.all_reduce(y, async_op=True).wait(),
        lambda y: distributed.barrier(),
        lambda y: distributed.all_gather([torch.empty(4)], y),
    ],
    ids=["broadcast", "a handle", "barrier", "another size"],
)
def test_a_call_without_a_functional_form_is_a_break(call):
    def fn(x):
        y = x * 2
        call(y)
        return y

    with pytest.raises(Unsupported, match="B208"):
        burnish.compile(fn, fullgraph=True)(X)
    assert "B208" in CATALOG


def test_a_write_into_a_tensor_that_requires_gradients_is_a_break():
    with pytest.raises(Unsupported, match="B208"):
        burnish.compile(reduced, fullgraph=True)(X.clone().requires_grad_())
    with torch.no_grad():
        assert torch.equal(burnish.compile(reduced, fullgraph=True)(X.clone().requires_grad_()), X * 2 + 1)


def test_a_wait_is_delayed_to_the_first_use_and_not_past_a_write():
    functional_collectives()
    ops = torch.ops._c10d_functional

    def traced(writes):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        started = graph.call_function(ops.all_reduce.default, (x, "sum", "0"))
        waited = graph.call_function(ops.wait_tensor.default, (started,))
        other = graph.call_method("cos", (x,))
        if writes:
            graph.call_method("add_", (x, 1))
        graph.output((graph.call_method("add", (waited, other)),))
        delay_waits(graph)
        graph.lint()
        return [str(node.target) for node in graph.nodes][1:-1]

    start, wait = "_c10d_functional.all_reduce.default", "_c10d_functional.wait_tensor.default"
    assert traced(False) == [start, "cos", wait, "add"]
    assert traced(True) == [start, "cos", wait, "add_", "add"]
