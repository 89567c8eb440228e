"""The programs of `state.py`: what runs, what it is given, and the places where changes can reach it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

SCALE = 1.5
"""A global that one of the functions reads, and that changes set."""


class Scaled:
    """A callable object with an attribute."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)
        self.act: Any = nn.ReLU()
        self.scaled, self.gain = Scaled(0.5), 2.0
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count += 1
        hidden = self.helper(self.act(self.norm(self.first(x))))
        return self.scaled(self.second(hidden)) + self.count, hidden

    def helper(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain


@dataclass
class World:
    run: Any
    model: Block
    set_cell: Callable[[Any], None] = lambda value: None
    log: list[str] = field(default_factory=list)
    handles: list[Any] = field(default_factory=list)
    dtype: torch.dtype = torch.float32
    rows: int = 3
    needs_gradient: bool = False

    def args(self, number: int) -> tuple:
        x = torch.randn(self.rows, 4, dtype=self.dtype) * (number + 1)
        return (x.requires_grad_(self.needs_gradient),)

    def tensors(self) -> list[torch.Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]


def module() -> World:
    model = Block()
    return World(model, model)


def closure() -> World:
    model, held = Block(), 2.0

    def run(x: torch.Tensor) -> Any:
        out, hidden = model(x)
        return out * held * SCALE, hidden.relu(), held

    def set_cell(value: Any) -> None:
        nonlocal held
        held = value

    return World(run, model, set_cell)


def transformed() -> World:
    model, held = Block(), 2.0

    def loss(parameters: dict, x: torch.Tensor) -> torch.Tensor:
        return functional_call(model.second, parameters, (x,)).sum() * held * model.gain

    def run(x: torch.Tensor) -> Any:
        hidden = model.first(x)
        made = grad(loss)(dict(model.second.named_parameters()), hidden)
        return made, vmap(model.scaled)(hidden) * SCALE

    def set_cell(value: Any) -> None:
        nonlocal held
        held = value

    return World(run, model, set_cell)


def step() -> World:
    """Reads flags, and makes tensors, whose type the flags decide."""
    model = Block()

    def run(x: torch.Tensor) -> Any:
        made = torch.ones(4) * SCALE
        product = x @ model.first.weight.t()
        return product + made.sum(), made, torch.is_grad_enabled(), x.view(-1), product.t()

    return World(run, model)


WORLDS: dict[str, Callable[[], World]] = {
    "module": module,
    "closure": closure,
    "transformed": transformed,
    "step": step,
}
