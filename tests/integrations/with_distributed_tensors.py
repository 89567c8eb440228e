"""`DTensor`s in compiled code, in two processes: graphs are of local tensors and collectives. Results, gradients and
placements are eager's."""

import copy

import torch
from torch import nn

import burnish
from burnish import events

from .with_distributed import RANKS, in_two_processes
from .with_tensor_parallel import same

SEEN = frozenset(("breaks", "lower.refused", "lower.native", "guards.sizes"))


class Heard(list):
    """What was not compiled as one graph, and how often the compiler lowered one."""

    def __init__(self):
        super().__init__()
        self.graphs, self.texts = 0, []
        self.stop = events.subscribe(self.hear)

    def hear(self, event):
        if event.kind in SEEN:
            self.append(f"{event.kind}: {event.data['text']}")
        elif event.kind == "lower" and event.data["stage"] == "trace":
            self.graphs += 1
            self.texts.append(str(event.data["graph"]))


def mesh_of_all():
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (RANKS,))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def column_and_row(block, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def along_the_sequence(block, mesh):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        PrepareModuleOutput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    plan = {
        "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
        "norm": SequenceParallel(use_local_output=False),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    parallelize_module(block, mesh, plan)
    whole = PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate())
    return parallelize_module(block, mesh, {"": whole})


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    gradients = [p.grad for p in model.parameters()]
    optimizer.step()
    return loss.detach(), tuple(gradients)


def check_training(divide, make_optimizer, shape):
    mesh, block, heard = mesh_of_all(), Block(), Heard()
    plain, other = (divide(copy.deepcopy(block), mesh) for _ in range(2))
    compiled = burnish.compile(other, fullgraph=True)
    optimizers = [make_optimizer(model.parameters()) for model in (plain, other)]
    for turn in range(5):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(turn))
        same(step(compiled, optimizers[1], x), step(plain, optimizers[0], x))
        assert turn == 0 or burnish.was_compiled(compiled)
    for found, wanted in zip(other.parameters(), plain.parameters(), strict=True):
        same(found.detach(), wanted.detach())
    heard.stop()
    assert heard == [] and heard.graphs == 1
    return heard.texts[0]


def check_parallel_modules(rank):
    text = check_training(column_and_row, lambda p: torch.optim.AdamW(p, lr=0.01), (4, 8))
    assert text.count("_c10d_functional.all_reduce") == 2  # one forward, one backward
    text = check_training(along_the_sequence, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), (2, 4, 8))
    assert "_c10d_functional.all_gather_into_tensor" in text and "_c10d_functional.reduce_scatter_tensor" in text


def test_parallel_modules_train_as_eager_in_one_graph_with_their_collectives(tmp_path):
    in_two_processes(check_parallel_modules, tmp_path)
