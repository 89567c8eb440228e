"""Random programs whose backward passes one tensor on to several parameters, and random use of their gradients.

    program = made(seed)
    observed(program, compiler) == observed(program, eager)

All numbers are small multiples of powers of two, so results are equal to the last bit in whatever order they are added.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

SHAPES = ((), (1,), (3,), (3, 1), (1, 3), (2, 3))
ACTIONS = ("backward", "backward", "backward", "through", "scale", "scale one", "none", "zero", "grad", "call")
HOOKS = ("returns", "post none")
IN_PLACE = ("in place", "post in place")

UNARY: dict[str, Callable] = {
    "sum": lambda x: x.sum(),
    "view": lambda x: x.view(-1) if x.is_contiguous() else x.reshape(-1),
    "same": lambda x: x.view(x.shape),
    "turn": lambda x: x.transpose(0, -1) if x.dim() else x,
    "add": lambda x: x + 0,
    "scale": lambda x: x * 2,
    "row": lambda x: x.unsqueeze(0),
    "sum rows": lambda x: x.sum(0) if x.dim() else x,
    "first": lambda x: x[:1] if x.dim() else x,
}
THROUGH: dict[str, Callable] = {
    "sum": lambda y: y.sum(),
    "view": lambda y: y.reshape(-1),
    "scale": lambda y: y * 2,
    "views": lambda y: y.reshape(-1) + y.reshape(-1),
}


@dataclass
class Program:
    shapes: list[tuple[int, ...]]
    terms: list[tuple[int, list[str]]]
    """Of each term: a parameter, and the function applied to it."""
    joins: list[str]
    actions: list[tuple[str, int]]
    hooks: list[tuple[int, str]]

    def run(self, *leaves: torch.Tensor) -> torch.Tensor:
        values = []
        for at, steps in self.terms:
            value = leaves[at]
            for step in steps:
                value = UNARY[step](value)
            values.append(value)
        while len(values) > 1:
            join = self.joins[len(values) % len(self.joins)]
            left, right = (values.pop(0), values.pop(0)) if join == "left" else (values.pop(), values.pop(0))
            values.append(left + right)
        return values[0]


def made(seed: int, in_place: bool = False) -> Program:
    """`in_place`: with hooks that write into the gradient that they are given."""
    draw = random.Random(seed)
    shapes = [draw.choice(SHAPES) for _ in range(draw.randint(2, 5))]
    terms = [(k, [draw.choice(list(UNARY)) for _ in range(draw.choice((0, 0, 1, 1, 2)))]) for k in range(len(shapes))]
    draw.shuffle(terms)
    hooks = [
        (draw.randrange(len(shapes)), draw.choice((*HOOKS, *IN_PLACE) if in_place else HOOKS))
        for _ in range(draw.choice((0, 0, 0, 1, 2) if not in_place else (1, 2)))
    ]
    actions = [(draw.choice(ACTIONS), draw.randrange(1 << 16)) for _ in range(draw.randint(2, 8))]
    return Program(shapes, terms, [draw.choice(("left", "ends")) for _ in range(3)], actions, hooks)


def observed(program: Program, compiler: Callable[[Callable], Callable]) -> list:
    """The state visible to a user after each action: gradients, weights, and which of them share memory."""
    leaves = [nn.Parameter(torch.arange(1.0, torch.Size(shape).numel() + 1).view(shape)) for shape in program.shapes]
    run = compiler(lambda *given: program.run(*given))
    for _ in range(2):  # traced and compiled
        run(*leaves).sum().backward()
    for x in leaves:
        x.grad = None
    for at, kind in program.hooks:
        add_hook(leaves[at], kind)
    y, given, found = run(*leaves), [], []
    for action, number in program.actions:
        if action == "call":
            y = run(*leaves)
        elif action in ("backward", "through", "grad"):
            out = y if action == "backward" else list(THROUGH.values())[number % len(THROUGH)](y)
            weight = torch.arange(1.0, out.numel() + 1).view(out.shape)
            if number & 64:
                weight = weight.view(-1).view(out.shape)
            if number & 128:
                weight = torch.ones_like(out)
            if action == "grad":
                made = torch.autograd.grad(out, leaves, weight, retain_graph=True)
                found.append([a is b for a, b in itertools.combinations((*made, weight), 2)])
                given += made
                with torch.no_grad():
                    if is_whole(made[0]):
                        made[0].mul_(0.5)
            else:
                out.backward(weight, retain_graph=True)
            if number & 32:
                given.append(weight)
        elif action in ("scale", "scale one"):
            with torch.no_grad():
                for x in leaves if action == "scale" else [leaves[number % len(leaves)]]:
                    if x.grad is not None:
                        x.grad.mul_(0.5)
        else:
            torch.optim.SGD(leaves).zero_grad(set_to_none=action == "none")
        tensors = [*(x.grad for x in leaves), *given]
        found.append((action, [None if x is None else (x.tolist(), strides(x)) for x in tensors], shared(tensors)))
    return found


def add_hook(leaf: torch.Tensor, kind: str) -> None:
    if kind == "in place":
        leaf.register_hook(lambda gradient: gradient.mul_(2) if is_whole(gradient) else None)
    elif kind == "returns":
        leaf.register_hook(lambda gradient: gradient * 2)
    elif kind == "post in place":
        leaf.register_post_accumulate_grad_hook(halve)
    else:
        leaf.register_post_accumulate_grad_hook(lambda x: setattr(x, "grad", None))


def halve(x: torch.Tensor) -> None:
    if x.grad is not None:
        x.grad.mul_(0.5)


def strides(x: torch.Tensor) -> list[int]:
    """Along dimensions of one element they mean nothing."""
    return [step if size > 1 else 0 for size, step in zip(x.shape, x.stride(), strict=True)]


def is_whole(x: torch.Tensor) -> bool:
    return not any(step == 0 and size > 1 for size, step in zip(x.shape, x.stride(), strict=True))


def shared(tensors: list) -> list[tuple[int, int, int]]:
    """Which of them share memory, and their offsets."""
    return [
        (a, b, x.data_ptr() - y.data_ptr())
        for (a, x), (b, y) in itertools.combinations(enumerate(tensors), 2)
        if x is not None and y is not None and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    ]
