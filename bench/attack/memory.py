"""Tensors of one shape in every layout, and the operators inside a graph that make them so.

laid_out(draw, (2, 3, 4), torch.float32)      ("step slices", a tensor of that shape)
PRODUCERS["softmax"](draw, x)                 what a graph computes of x, of x's shape
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
import torch.nn.functional as F

Shape = tuple[int, ...]


def dense(shape: Shape, order: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Memory without gaps, its dimensions from the outermost to the innermost in this order."""
    back = [order.index(k) for k in range(len(order))]
    return torch.randn([shape[k] for k in order], dtype=torch.float64).to(dtype).permute(back)


def contiguous(draw: Random, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    return dense(shape, list(range(len(shape))), dtype)


def transposed(draw: Random, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    return dense(shape, list(reversed(range(len(shape)))), dtype)


def permuted(draw: Random, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    return dense(shape, draw.sample(range(len(shape)), len(shape)), dtype)


def channels_last(draw: Random, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    rank = len(shape)
    return dense(shape, [0, *range(2, rank), 1] if rank > 2 else list(range(rank)), dtype)


def sliced(draw: Random, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """A part of something larger that begins later."""
    before = [draw.randrange(3) for _ in shape]
    x = permuted(draw, tuple(n + 2 * b for n, b in zip(shape, before, strict=True)), dtype)
    return x[tuple(slice(b, b + n) for n, b in zip(shape, before, strict=True))]


def stepped(draw: Random, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    steps = [draw.choice((1, 2, 3)) for _ in shape]
    x = permuted(draw, tuple(n * step for n, step in zip(shape, steps, strict=True)), dtype)
    return x[tuple(slice(step - 1, None, step) for step in steps)]


def expanded(draw: Random, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    over = draw.randrange(len(shape))
    return permuted(draw, tuple(1 if k == over else n for k, n in enumerate(shape)), dtype).expand(shape)


def odd_strides(draw: Random, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """Those of dimensions of one element mean nothing."""
    x = permuted(draw, shape, dtype)
    return x.as_strided(shape, [draw.randrange(50) if n == 1 else s for n, s in zip(shape, x.stride(), strict=True)])


def overlapping(draw: Random, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """Windows that share elements."""
    strides = [draw.choice((1, 2, 3)) for _ in shape]
    length = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    return torch.randn(length + 2, dtype=torch.float64).to(dtype).as_strided(shape, strides, 2)


LAYOUTS: dict[str, Callable[[Random, Shape, torch.dtype], torch.Tensor]] = {
    "contiguous": contiguous,
    "transposed": transposed,
    "permuted": permuted,
    "channels last": channels_last,
    "sliced": sliced,
    "step slices": stepped,
    "expanded": expanded,
    "odd strides": odd_strides,
    "overlapping": overlapping,
}


def laid_out(draw: Random, shape: Shape, dtype: torch.dtype) -> tuple[str, torch.Tensor]:
    name = draw.choice(list(LAYOUTS)) if shape else "contiguous"
    return name, LAYOUTS[name](draw, shape, dtype)


def turned(x: torch.Tensor, order: list[int], change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Changed while its dimensions are in another order."""
    return change(x.permute(order)).permute([order.index(k) for k in range(len(order))])


def normed(x: torch.Tensor) -> torch.Tensor:
    """Of rows that are not constant: there rounding is all that is left, 300 times as large."""
    return F.layer_norm(x + torch.linspace(0, 1, x.shape[-1], dtype=torch.float64).to(x.dtype), x.shape[-1:])


PRODUCERS: dict[str, Callable[[list[int], torch.Tensor], torch.Tensor]] = {
    "input": lambda order, x: x,
    "element by element": lambda order, x: x.tanh(),
    "softmax": lambda order, x: x.softmax(-1),
    "softmax of another dimension": lambda order, x: x.softmax(order[0]),
    "layer norm": lambda order, x: normed(x),
    "transposed softmax": lambda order, x: turned(x, order, lambda y: y.softmax(-1)),
    "transposed copy": lambda order, x: turned(x.sin(), order, torch.Tensor.contiguous),
    "cat": lambda order, x: torch.cat([x[:1].exp(), x[1:]], 0) if len(x) > 1 else x.exp(),
    "transposed cat": lambda order, x: turned(x, order, lambda y: torch.cat([y[:1], y[1:].neg()], 0)),
    "slice of a cat": lambda order, x: torch.cat([x.neg(), x], 0)[len(x) :],
    "step of a stack": lambda order, x: torch.stack([x.neg(), x], -1)[..., 1],
    "expanded mean": lambda order, x: x.mean(order[0], keepdim=True).expand(x.shape),
    "product": lambda order, x: x @ x.mT @ x if x.ndim > 1 else x * 2,
}
"""What is computed has x's shape. `order` is an order of its dimensions."""

__all__ = ["LAYOUTS", "PRODUCERS", "laid_out", "normed"]
