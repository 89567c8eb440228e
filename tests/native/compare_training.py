"""Trains two copies of a program, one eagerly and one compiled by Burnish's own backend, and compares them.

    def build(compiler):
        model = ...
        run = compiler(model)               # in the eager world the compiler does nothing
        def step(x): ...                    # what surrounds it stays plain Python
        return step, (model,)               # and the parts whose state is compared

    seen = alike(build, lambda i: (torch.randn(4, 3),), steps=6)
    assert (seen.breaks, seen.refused, seen.segments) == ([], [], 1)

After each step results, errors, parameters, gradients, buffers and the state of optimizers are compared: facts exactly,
values by a tolerance, for compiled code adds up in another order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import burnish
from burnish import events
from burnish.settings import patch

from ..seeding import seed


@dataclass
class Seen:
    segments: int = 0
    breaks: list[str] = field(default_factory=list)
    """The codes of the breaks, one for each segment that ends in one."""
    given_up: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Why graphs run eagerly."""
    native: list[str] = field(default_factory=list)
    """Why functions of the user run as they are."""
    planned: int = 0
    """Graphs that were compiled; a backward counts for itself."""


def alike(
    build: Callable, data: Callable[[int], tuple], steps: int = 4, tolerance: float = 1e-4, **settings: Any
) -> Seen:
    burnish.reset()
    seen, made = Seen(), []

    def compiler(function: Callable) -> Callable:
        made.append(burnish.compile(function))
        return made[-1]

    def note(event: Any) -> None:
        if event.kind == "lower.refused":
            seen.refused.append(event.data["text"])
        if event.kind == "lower.native":
            seen.native.append(event.data["text"])
        seen.planned += event.kind == "loops"

    options = {"never_slower": False, "on_error": "raise", "eager_random": True} | settings
    stop = events.subscribe(note, ["lower.refused", "lower.native", "loops"])
    try:
        with patch(**options):
            seed(0)
            eager, parts = build(lambda function: function)
            seed(0)
            compiled, parts_compiled = build(compiler)
            for i in range(steps):
                results = []
                for step in (eager, compiled):
                    seed(100 + i)
                    results.append(outcome(step, copy.deepcopy(data(i))))
                close(results[1], results[0], tolerance, f"result of step {i}")
                close(parts_compiled, parts, tolerance, f"after step {i}: ")
    finally:
        stop()
    for function in made:
        program = function.__burnish_program__
        for point in (program.entry, *program.continuations.values()):
            seen.segments += len(point.segments)
            seen.breaks += [s.break_.kind.code for s in point.segments if s.break_ is not None]
            seen.given_up += [point.why_given_up] if point.given_up else []
    return seen


def outcome(function: Callable, args: tuple) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The observable facts of a result or of a part of a world."""
    if isinstance(tree, nn.Module):
        yield from leaves(dict(tree.state_dict()), f"{path}.state_dict()")
        yield from leaves({n: p.grad for n, p in tree.named_parameters()}, f"{path}.grad")
    elif hasattr(tree, "state_dict"):
        yield from leaves({k: v for k, v in tree.state_dict().items() if k != "_schedulers"}, f"{path}.state_dict()")
    elif isinstance(tree, dict):
        for key, part in tree.items():
            yield from leaves(part, f"{path}[{key!r}]")
    elif isinstance(tree, (list, tuple)):
        yield path, len(tree)
        for k, part in enumerate(tree):
            yield from leaves(part, f"{path}[{k}]")
    else:
        yield path, tree


def close(found: Any, wanted: Any, tolerance: float, path: str) -> None:
    have, want = dict(leaves(found, path)), dict(leaves(wanted, path))
    assert have.keys() == want.keys(), f"{path}: {wanted} expected, got {found}"
    for at, x in want.items():
        y = have[at]
        if isinstance(x, torch.Tensor):
            assert (y.dtype, y.shape, y.requires_grad) == (x.dtype, x.shape, x.requires_grad), f"{at}: {x}, got {y}"
            dense = [t.detach().to_dense() if t.is_sparse else t.detach() for t in (y, x)]
            torch.testing.assert_close(
                *dense, rtol=tolerance, atol=tolerance / 10, equal_nan=True, msg=lambda text, at=at: f"{at}: {text}"
            )
        elif isinstance(x, float):
            assert y == x or abs(y - x) <= tolerance * max(abs(x), 1e-6) or x != x and y != y, f"{at}: {x}, got {y}"
        elif isinstance(x, (int, str, type(None))):
            assert y == x, f"{at}: {x!r} expected, got {y!r}"


def trained(
    loss_of: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer, is_whole: bool, compiler: Callable
) -> Callable[..., torch.Tensor]:
    """A training step: compiled as a whole, or only its loss."""
    loss = loss_of if is_whole else compiler(loss_of)

    def step(*inputs: Any) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(*inputs)
        value.backward()
        optimizer.step()
        return value.detach()

    return compiler(step) if is_whole else step
