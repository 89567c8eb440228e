"""Activation checkpointing inside compiled functions: eager's results, and no more saved for backward than in eager."""

import contextlib
import functools
import gc
import sys

import pytest
import torch
from bench.memory import give_back, memory
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import burnish
from burnish.settings import patch

from .compare_training import alike


def each(blocks, x, **options):
    for block in blocks:
        x = checkpoint(block, x, **options)
    return x


def nested(blocks, x):
    def inner(x):
        return checkpoint(blocks[1], blocks[0](x), use_reentrant=False)

    return blocks[2](checkpoint(inner, x, use_reentrant=False))


def keep_products(ctx, operator, *args, **kwargs):
    is_product = operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


def two_contexts():
    return contextlib.nullcontext(), contextlib.nullcontext()


WAYS = {
    "without reentry": lambda b, x: each(b, x, use_reentrant=False),
    "with reentry": lambda b, x: each(b, x, use_reentrant=True),
    "nested": nested,
    "in segments": lambda b, x: checkpoint_sequential(nn.Sequential(*b), 2, x, use_reentrant=False),
    "with contexts": lambda b, x: each(b, x, use_reentrant=False, context_fn=two_contexts),
    "selective": lambda b, x: each(
        b, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, keep_products)
    ),
    "with other random numbers": lambda b, x: each(b, x, use_reentrant=False, preserve_rng_state=False),
}


def blocks_of(dropout=0.0, width=32):
    return nn.ModuleList(
        nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, 8)) for _ in range(3)
    )


@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.5], ids=["plain", "dropout"])
@pytest.mark.parametrize("is_whole", [False, True], ids=["forward", "whole step"])
@pytest.mark.parametrize("way", WAYS)
def test_checkpointed_blocks_train_as_in_eager(way, is_whole, dropout):
    def build(compiler):
        blocks = blocks_of(dropout)
        optimizer = torch.optim.SGD(blocks.parameters(), 0.1)

        def loss_of(x):
            return WAYS[way](blocks, x).square().mean()

        run = loss_of if is_whole else compiler(loss_of)

        def step(x):
            optimizer.zero_grad()
            loss = run(x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return compiler(step) if is_whole else step, (blocks,)

    seen = alike(build, lambda i: (torch.randn(16, 8, requires_grad=True),), steps=3)
    assert seen.given_up == []


def saved_bytes(run, x):
    """The growth of the process between forward and backward, in the second run: in the first one, memory left by
    earlier tests may be freed."""
    for _ in range(2):
        gc.collect()
        give_back()
        before = memory("VmRSS")
        loss = run(x)
        give_back()
        held = memory("VmRSS") - before
        loss.backward()
    return held


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the kernel of Linux")
@pytest.mark.parametrize("reentrant", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_compiled_function_with_checkpoints_saves_no_more_than_eager(reentrant):
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 64)) for _ in range(4))
    x = torch.randn(2048, 64, requires_grad=True)  # each block saves about 16 MB, or half of one

    def plain(x):
        for block in blocks:
            x = block(x)
        return x.square().mean()

    def with_checkpoints(x):
        return each(blocks, x, use_reentrant=reentrant).square().mean()

    with patch(never_slower=False, on_error="raise"):
        compiled, compiled_plain = burnish.compile(with_checkpoints), burnish.compile(plain)
        for _ in range(2):
            compiled(x).backward()
            compiled_plain(x).backward()
            with_checkpoints(x).backward()
        eager, all_of_it = saved_bytes(with_checkpoints, x), saved_bytes(compiled_plain, x)
        eager = max(eager, 0)  # less if the allocator gives other memory back meanwhile
        assert all_of_it > 24 << 20  # otherwise this says nothing
        assert saved_bytes(compiled, x) <= eager + (4 << 20) < all_of_it / 2
