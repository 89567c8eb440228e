"""The harness of training step tests: one copy trains eagerly, one compiled, and all state must be equal.

    def build():
        model = ...
        optimizer = ...
        def train(x): ...
        return train, (model, optimizer)

    captured = trained_alike(build, data, steps=6)
    assert captured.breaks == [] and captured.segments == 2

A ``build`` with a parameter is given the compiler, which does nothing in the eager world, and what it returns stays
plain Python: what surrounds the compiled function.

After every step the losses, parameters, buffers, gradients, the optimizers' ``state_dict()`` and the schedulers' state
of both worlds are compared, bit by bit.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

import burnish


class Captured(NamedTuple):
    breaks: list[str]  # the codes of the breaks, one for each segment that ends in one
    segments: int
    graphs: list[torch.fx.GraphModule]
    given_up: list[str]


def trained_alike(build: Callable, data: Callable[[int], tuple], steps: int = 6) -> Captured:
    burnish.reset()
    made: list[Any] = []

    def compiler(function: Callable) -> Callable:
        made.append(burnish.compile(function, backend="eager"))
        return made[-1]

    surrounds = bool(inspect.signature(build).parameters)
    seeded(0)
    train, parts = build(lambda function: function) if surrounds else build()
    seeded(0)
    compiled, parts_compiled = build(compiler) if surrounds else build()
    if not surrounds:
        compiled = compiler(compiled)
    for i in range(steps):
        seeded(100 + i)
        args = data(i)
        wanted = outcome(train, args)
        seeded(100 + i)
        found = outcome(compiled, data(i))
        same(found, wanted, f"result of step {i}")
        same([state_of(p) for p in parts_compiled], [state_of(p) for p in parts], f"after step {i}: ")
        assert torch.is_grad_enabled()
    return captured(made[0])


def captured(compiled: Any) -> Captured:
    program = compiled.__burnish_program__
    points = (program.entry, *program.continuations.values())
    segments = [segment for point in points for segment in point.segments]
    return Captured(
        [s.break_.kind.code for s in segments if s.break_ is not None],
        len(segments),
        [s.graph_module for s in segments if s.graph_module is not None],
        [point.why_given_up for point in points if point.given_up],
    )


def outcome(function: Callable, args: tuple) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def seeded(n: int) -> None:
    torch.manual_seed(n)
    random.seed(n)


def state_of(part: Any) -> Any:
    """What can be seen of a part of a world."""
    if isinstance(part, nn.Module):
        parameters = dict(part.named_parameters())
        return (
            part.state_dict(),
            {n: p.grad for n, p in parameters.items()},
            {n: p.requires_grad for n, p in parameters.items()},
        )
    if isinstance(part, torch.optim.lr_scheduler.LRScheduler):
        return {k: v for k, v in part.state_dict().items() if k != "_schedulers" and "lambda" not in k}
    if hasattr(part, "state_dict"):
        return part.state_dict()
    return part


def same(found: Any, wanted: Any, path: str) -> None:
    assert type(found) is type(wanted), f"{path}: {wanted!r} expected, got {found!r}"
    if isinstance(wanted, torch.Tensor):
        facts = [
            (t.dtype, t.shape, t.stride() if t.layout is torch.strided else None, t.requires_grad)
            for t in (found, wanted)
        ]
        assert facts[0] == facts[1], f"{path}: {facts[1]} expected, got {facts[0]}"
        wanted, found = wanted.detach(), found.detach()
        if wanted.is_sparse:
            wanted, found = wanted.to_dense(), found.to_dense()
        assert torch.equal(found.nan_to_num(7.0), wanted.nan_to_num(7.0)), f"{path}: {wanted} expected, got {found}"
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted), f"{path}: keys {list(wanted)} expected, got {list(found)}"
        for key in wanted:
            same(found[key], wanted[key], f"{path}[{key!r}]")
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted), f"{path}: {len(wanted)} items expected, got {len(found)}"
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            same(a, b, f"{path}[{i}]")
    elif isinstance(wanted, (int, float, str, bool, type(None))):
        assert repr(found) == repr(wanted), f"{path}: {wanted!r} expected, got {found!r}"


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3), nn.LayerNorm(3))


def rows(i: int) -> tuple[torch.Tensor]:
    return (torch.randn(5, 4),)
