"""Tensor parallelism in compiled code, in two processes: results, gradients and placements are eager's."""

import copy

import pytest
import torch
from torch import nn

import burnish
from burnish import events

from .with_distributed import RANKS, batch, in_two_processes


class Parallel(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.between = nn.ModuleDict({"up": nn.Linear(16, 32), "down": nn.Linear(32, 16)})
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = self.between["down"](torch.relu(self.between["up"](x))) + x
        return self.last(torch.tanh(x) * 0.5)


def divided(module, mesh):
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    parallelize_module(module.between, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    assert isinstance(module.between["up"].weight, DTensor)
    return module


def losses_of(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    found = []
    for i in range(3):
        optimizer.zero_grad()
        x, y = batch(0, i)  # the same in both: it is the model that is divided
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found


def check_ways(ways, wanted):
    """Each process trains like ``wanted``; returns the codes of the graph breaks."""
    net, breaks = Parallel(), []
    torch.testing.assert_close(losses_of(copy.deepcopy(net)), wanted(copy.deepcopy(net)))
    stop = events.subscribe(lambda event: breaks.append(event.data["text"]) if event.kind == "breaks" else None)
    for name, wrap in ways.items():
        model = wrap(copy.deepcopy(net))
        torch.testing.assert_close(
            losses_of(model), wanted(copy.deepcopy(net)), msg=lambda text, name=name: f"{name}: {text}"
        )
        assert burnish.was_compiled(model), name
    stop()
    return set(codes_of(breaks))


def check_tensor_parallel(rank):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (RANKS,))
    found = check_ways(
        {
            "before": lambda m: divided(burnish.compile_(m), mesh),
            "in place after": lambda m: burnish.compile_(divided(m, mesh)),
            "after": lambda m: burnish.compile(divided(m, mesh)),
        },
        lambda m: losses_of(divided(m, mesh)),
    )
    assert found == set()


def check_tensor_parallel_and_fully_sharded(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1, RANKS), mesh_dim_names=("data", "tensor"))

    def both(module):
        return fully_shard(divided(module, mesh["tensor"]), mesh=mesh["data"])

    check_ways(
        {"before": lambda m: both(burnish.compile_(m)), "after": lambda m: burnish.compile_(both(m))},
        lambda m: losses_of(both(m)),
    )


@pytest.mark.slow
def test_tensor_parallel_modules_that_are_fully_sharded_too_train_as_eager(tmp_path):
    in_two_processes(check_tensor_parallel_and_fully_sharded, tmp_path)


@pytest.mark.slow
def test_tensor_parallel_modules_train_as_eager_without_breaks(tmp_path):
    in_two_processes(check_tensor_parallel, tmp_path)


# ---- DTensors in functions

A, B = torch.randn(8, 6), torch.randn(6, 8)


def pointwise(a, b):
    return torch.sin(a) * 2 + b.T.relu()


def product(a, b):
    return a @ b


def rows(a, b):
    return torch.softmax(a, -1), nn.functional.layer_norm(a, (6,))


def in_place(a, b):
    a = a.clone()
    a.add_(1)
    return a.mul_(2)


def parts(a, b):
    mine = torch.sin(a.to_local()).cos()
    return a * 2, mine, mine.sum()


def redistributed(a, b):
    from torch.distributed.tensor import Replicate

    return (a * 2).redistribute(a.device_mesh, [Replicate()]) + 1


def gathered(a, b):
    return (a.sum() * 3).full_tensor() + a.shape[0]


def wrapped(a, b):
    return type(a).from_local(a.to_local() * 3, a.device_mesh, a.placements) - 1


def branching(a, b):
    return a * 2 if a.sum().full_tensor() > 0 else a * 3


def distributed_inside(a, b):
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(torch.ones(4, 4), a.device_mesh, a.placements) * 2


# With the graph breaks: the truth of a tensor is one, also where other processes computed a part of it.
ON_DTENSORS = {
    pointwise: [],
    product: [],
    rows: [],
    in_place: [],
    parts: [],
    redistributed: [],
    gathered: [],
    wrapped: [],
    branching: ["B101"],
    distributed_inside: [],
}


def same(found, wanted):
    from torch.distributed.tensor import DTensor

    assert type(found) is type(wanted)
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for pair in zip(found, wanted, strict=True):
            same(*pair)
        return
    if isinstance(wanted, DTensor):
        assert found.placements == wanted.placements and found.device_mesh == wanted.device_mesh
        assert found.shape == wanted.shape and found.stride() == wanted.stride()
        assert found.requires_grad is wanted.requires_grad
        found, wanted = found.to_local(), wanted.to_local()
    torch.testing.assert_close(found, wanted)


def total(result):
    if isinstance(result, tuple):
        return sum(map(total, result))
    return getattr(result.sum(), "full_tensor", result.sum)()


def codes_of(breaks):
    return [text.split()[2].rstrip(":") for text in breaks]


def check_dtensors(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))

    def operands(turn, gradients, placement):
        return [
            distribute_tensor(x + turn, mesh, [p]).requires_grad_(gradients)
            for x, p in ((A, placement), (B, Replicate()))
        ]

    breaks = []
    stop = events.subscribe(lambda event: breaks.append(event.data["text"]) if event.kind == "breaks" else None)
    for fn, expected in ON_DTENSORS.items():
        for gradients in (False, True):
            breaks.clear()
            compiled = burnish.compile(fn)
            # Other placements are other programs: a graph of the first must not serve the second.
            for turn, placement in enumerate((Shard(0), Shard(0), Replicate(), Shard(1), Shard(0))):
                plain, traced = operands(turn, gradients, placement), operands(turn, gradients, placement)
                wanted, found = fn(*plain), compiled(*traced)
                same(found, wanted)
                if turn == 0 and not gradients:
                    assert codes_of(breaks) == expected, (fn.__name__, breaks)
                if total(wanted).requires_grad:
                    total(wanted).backward()
                    total(found).backward()
                    for x, y in zip(traced, plain, strict=True):
                        assert (x.grad is None) is (y.grad is None)
                        if x.grad is not None:
                            same(x.grad, y.grad)
    stop()


@pytest.mark.slow
def test_functions_of_dtensors_equal_eager_for_every_placement(tmp_path):
    in_two_processes(check_dtensors, tmp_path)
