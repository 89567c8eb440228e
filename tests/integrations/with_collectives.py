"""Collectives in compiled functions, in two processes: results and gradients are eager's, most calls are part of the
graph, and breaks name those that are not."""

import pytest
import torch
from torch import distributed

import burnish
from burnish import events
from burnish.integrations.torch_compile import dynamo_backend

from .with_distributed import RANKS, in_two_processes
from .with_tensor_parallel import codes_of


def functional_collectives():
    from torch.distributed import _functional_collectives  # brings the operators along

    return _functional_collectives


def reduced(x):
    y = x * 2
    distributed.all_reduce(y)
    return torch.sin(y) + 1


def greatest(x):
    y = x * 2
    distributed.all_reduce(y, op=distributed.ReduceOp.MAX, group=distributed.group.WORLD)
    return y - x


def collected(x):
    y = torch.relu(x)
    found = [torch.empty_like(y) for _ in range(distributed.get_world_size())]
    distributed.all_gather(found, y)
    return torch.cat(found) * 2


def gathered_and_scattered(x):
    whole = torch.empty(RANKS * len(x), x.shape[1])
    distributed.all_gather_into_tensor(whole, x * 2)
    part = torch.empty_like(x)
    distributed.reduce_scatter_tensor(part, whole.cos())
    other = torch.empty_like(whole)
    distributed.all_to_all_single(other, whole)
    return part + distributed.get_rank(), other


def writes_to_its_input(x):
    distributed.all_reduce(x)
    return x.sum()


def begun(x):
    y = x * 2
    work = distributed.all_reduce(y, async_op=True)
    z = torch.cos(x)
    work.wait()
    return y + z


def announced(x):
    y = x * 2
    distributed.broadcast(y, 0)
    return y + 1


def functional(x):
    return functional_collectives().all_reduce(x * 2, "sum", distributed.group.WORLD) + 1


def several(x):
    collectives = functional_collectives()
    total = collectives.all_reduce(x, "sum", distributed.group.WORLD)
    other = x.cos() * 3
    whole = collectives.all_gather_tensor(other, 0, distributed.group.WORLD)
    return total + 1, whole.sum() + other


def operators(x):
    y = torch.ops._c10d_functional.all_reduce(x * 2, "sum", distributed.group.WORLD.group_name)
    return torch.ops._c10d_functional.wait_tensor.default(y) + 1


def unused(x):
    functional_collectives().all_reduce(x, "sum", distributed.group.WORLD)
    return x + 1


def differentiable(x):
    from torch.distributed.nn import functional

    total = functional.all_reduce(x * 2, distributed.ReduceOp.MAX, distributed.group.WORLD)
    first = functional.broadcast(x.cos(), 0)
    parts = functional.all_gather(x.sin())
    functional.reduce(x, 0)
    return total + first + torch.stack(parts).sum(0) + functional.scatter(functional.gather(x, 0), 0)


# With the breaks that each has.
COLLECTIVES = {
    reduced: [],
    greatest: [],
    collected: [],
    gathered_and_scattered: [],
    writes_to_its_input: [],
    begun: ["B208", "B201"],
    announced: ["B208"],
    functional: [],
    several: [],
    operators: [],
    unused: [],
    differentiable: [],
}


def tensors(rank, turn, size):
    return torch.randn(size, 3, generator=torch.Generator().manual_seed(10 * turn + rank))


def check_collectives(rank):
    functional_collectives()
    seen = []
    stop = events.subscribe(lambda event: seen.append(event) if event.kind in ("breaks", "lower.refused") else None)
    for fn, expected in COLLECTIVES.items():
        seen.clear()
        compiled = burnish.compile(fn)
        for turn, size in enumerate((4, 4, 6, 8, 4)):
            x, y = tensors(rank, turn, size), tensors(rank, turn, size)
            torch.testing.assert_close(compiled(x), fn(y), msg=lambda text, fn=fn: f"{fn.__name__}: {text}")
            assert torch.equal(x, y)
        texts = [event.data["text"] for event in seen if event.kind == "breaks"]
        assert list(dict.fromkeys(codes_of(texts))) == expected, (fn.__name__, texts)  # new sizes are traced again
        assert not [event for event in seen if event.kind == "lower.refused"]
    # Where another captures, the operators come in a graph.
    for fn in (functional, operators):
        behind_dynamo = torch.compile(fn, backend=dynamo_backend)
        for turn in range(3):
            x = torch.full((5,), rank + turn + 1.0)
            torch.testing.assert_close(behind_dynamo(x), fn(x))
    stop()


@pytest.mark.slow
def test_collectives_in_compiled_functions_are_in_the_graph_or_breaks_that_name_them(tmp_path):
    in_two_processes(check_collectives, tmp_path)


def averaged(x, weight):
    loss = functional_collectives().all_reduce((x @ weight).tanh(), "sum", distributed.group.WORLD).square().mean()
    return loss / distributed.get_world_size()


def gathered_with_gradients(x, weight):
    whole = functional_collectives().all_gather_tensor_autograd(x @ weight, 0, distributed.group.WORLD)
    return (whole * distributed.get_rank()).sin().sum()


def in_place_with_gradients(x, weight):
    y = x @ weight
    distributed.all_reduce(y)
    return y.sum()


def differentiable_with_gradients(x, weight):
    return differentiable(x @ weight).square().sum()


def check_gradients(rank):
    functional_collectives()
    for fn in (averaged, gathered_with_gradients, in_place_with_gradients, differentiable_with_gradients):
        compiled = burnish.compile(fn)
        for turn, size in enumerate((4, 4, 6, 8)):
            found = []
            for call in (compiled, fn):
                weight = torch.ones(3, 3, requires_grad=True)
                result = call(tensors(rank, turn, size), weight)
                result.backward()
                found.append((result, weight.grad))
            torch.testing.assert_close(*found, msg=lambda text, fn=fn: f"{fn.__name__}: {text}")


@pytest.mark.slow
def test_gradients_through_collectives_are_eagers(tmp_path):
    in_two_processes(check_gradients, tmp_path)
