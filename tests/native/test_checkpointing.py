"""Activation checkpointing inside compiled functions: eager's results, and what is saved for backward is as little."""

import contextlib
import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import burnish
from burnish.settings import patch

from .worlds import alike


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
    "selective": lambda b, x: each(b, x, use_reentrant=False, context_fn=functools.partial(
        create_selective_checkpoint_contexts, keep_products)),
    "with other random numbers": lambda b, x: each(b, x, use_reentrant=False, preserve_rng_state=False),
}


def blocks_of(dropout=0.0, width=32):
    return nn.ModuleList(nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, 8))
                         for _ in range(3))


@pytest.mark.parametrize("dropout", [0.0, 0.5], ids=["plain", "dropout"])
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
    """How much autograd holds when forward is through, of tensors that were not there before."""
    held: dict[int, torch.Tensor] = {}

    def look(node):
        for name in dir(node) if node is not None else ():
            if name.startswith("_saved_") or name == "saved_tensors":
                with contextlib.suppress(Exception):
                    found = getattr(node, name)
                    for value in found if isinstance(found, tuple) else (found,):
                        if isinstance(value, torch.Tensor) and not value.is_leaf or torch.is_tensor(value):
                            held[value.data_ptr()] = value
        for kept in getattr(node, "kept", None) or ():
            if isinstance(kept, torch.Tensor):
                held[kept.data_ptr()] = kept

    loss = run(x)
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if "Checkpoint" not in type(node).__name__:
                look(node)
            waiting += [following for following, _ in node.next_functions]
    loss.backward()
    return sum(value.nbytes for value in held.values() if value.grad_fn is not None or not value.is_leaf
               or value.numel() > 0)
