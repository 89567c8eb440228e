"""FSDP2 around compiled blocks: `fully_shard` before and after, whole graphs, and the methods that it adds."""

import copy

import pytest
import torch
from torch import distributed, nn
from torch.distributed.fsdp import FSDPModule, fully_shard

import burnish

from ..recorded_events import recorded
from .with_distributed import Net, batch

WAYS = {
    "a compiled block, then sharded": lambda block: fully_shard(burnish.compile(block, fullgraph=True)),
    "a sharded block, then compiled": lambda block: burnish.compile(fully_shard(block), fullgraph=True),
    "in place, then sharded": lambda block: fully_shard(burnish.compile_(block, fullgraph=True)),
    "sharded, then in place": lambda block: burnish.compile_(fully_shard(block), fullgraph=True),
}


@pytest.fixture
def one_process():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def trained(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for i in range(4):
        x, y = batch(0, i)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses + [parameter.full_tensor().detach() for parameter in model.parameters()]


def sharded(net, wrap):
    for i, block in enumerate(net.blocks):
        net.blocks[i] = wrap(block)
    return fully_shard(net)


@pytest.mark.parametrize("way", WAYS)
def test_blocks_that_are_compiled_whole_train_as_eager(one_process, way):
    net = Net()
    wanted = trained(sharded(copy.deepcopy(net), fully_shard))
    with recorded("segment") as segments:
        found = trained(sharded(net, WAYS[way]))
    torch.testing.assert_close(found, wanted)
    assert len(segments) == 2  # of forward, once for each block: none of the hooks


def test_a_compiled_block_has_the_methods_of_a_sharded_one(one_process):
    net = sharded(Net(), WAYS["a compiled block, then sharded"])
    trained(net)
    block = net.blocks[0]
    assert isinstance(block, FSDPModule)
    block.unshard()
    assert not isinstance(block.inner.weight, distributed.tensor.DTensor)
    block.reshard()
    assert isinstance(block.inner.weight, distributed.tensor.DTensor)
    net.set_requires_gradient_sync(False)
    block.unshard()
    net.to(torch.float64)  # which takes the blocks apart again before it converts what they hold
    assert block.inner.weight.dtype == torch.float64 and isinstance(block.inner.weight, distributed.tensor.DTensor)


def test_hooks_that_come_and_go_run_around_the_compiled_forward(one_process):
    block = burnish.compile(Net().blocks[0], fullgraph=True)
    x = torch.randn(3, 16)
    wanted = block(x)
    calls = []
    block.register_forward_pre_hook(lambda module, args: calls.append("own"))
    for _ in range(2):
        torch.testing.assert_close(block(x), wanted)
    fully_shard(block)
    for _ in range(2):
        torch.testing.assert_close(block(x), wanted)
    assert calls == ["own"] * 4 and "forward" not in vars(block._orig_mod)


def test_an_error_in_the_forward_leaves_the_module_as_it_was(one_process):
    block = fully_shard(burnish.compile(Net().blocks[0]))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        block(torch.randn(3, 5))
    assert "forward" not in vars(block._orig_mod)


def test_compiled_code_may_call_a_sharded_block_that_is_compiled_whole(one_process):
    block = Net().blocks[0]
    x = torch.randn(3, 16)
    wanted = block(x) + 1
    block = fully_shard(burnish.compile(block, fullgraph=True))
    outer = burnish.compile(lambda x: block(x) + 1)
    for _ in range(3):
        torch.testing.assert_close(outer(x), wanted)


def test_a_class_that_is_assigned_and_taken_back(one_process):
    block = burnish.compile(Net().blocks[0])
    before = block.__class__
    block.__class__ = type("More", (before,), {"added": lambda self: "added"})
    assert block.added() == "added" and isinstance(block, before) and not hasattr(block, "missing")
    block._orig_mod = torch.nn.Linear(3, 3)
    assert block.added() == "added" and not hasattr(block, "missing")
    block.__class__ = before
    assert not hasattr(block, "added") and block.__class__.__name__ == "Linear"


def test_forward_may_assign_itself_between_hooks(one_process):
    class Once(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            self.forward = lambda x: self.inner(x) * 2
            return self.inner(x)

    net = Once()
    plain, compiled = fully_shard(copy.deepcopy(net)), fully_shard(burnish.compile(net))
    x = torch.randn(2, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), plain(x))
