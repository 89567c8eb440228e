"""Programs that end in a library call, or in a kernel of rows: what is fed operands in every layout.

CONSUMERS["linear"].shapes(draw)      a shape for each operand, those of weights by their names
CONSUMERS["linear"].run(x, weight=…)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F

from .memory import normed

Shapes = dict[str, tuple[int, ...]]
"""By the operand's name: `x`, `y` and `z` are computed, all others are parameters."""

COMPUTED = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class Consumer:
    shapes: Callable[[Random], Shapes]
    run: Callable[..., torch.Tensor]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.bfloat16)


SINGLE = (torch.float32, torch.float64)


def size(draw: Random) -> int:
    return draw.choice((1, 2, 3, 4, 7, 8, 16, 17, 33))


def linear_shapes(draw: Random) -> Shapes:
    rows, depth, columns = size(draw), size(draw), size(draw)
    return {"x": (rows, depth), "weight": (columns, depth), "bias": (columns,)}


def matrices(draw: Random) -> Shapes:
    rows, depth, columns = size(draw), size(draw), size(draw)
    return {"x": (rows, depth), "y": (depth, columns)}


def batches(draw: Random) -> Shapes:
    count = draw.choice((1, 2, 5))
    return {name: (count, *shape) for name, shape in matrices(draw).items()}


def attention_shapes(draw: Random, is_shared: bool = False) -> Shapes:
    batch, heads, queries, depth = draw.choice((1, 2)), draw.choice((1, 2, 4)), size(draw), draw.choice((4, 8, 16))
    keys, columns = size(draw), depth
    kept = heads if not is_shared else 1
    return {"x": (batch, heads, queries, depth), "y": (batch, kept, keys, depth), "z": (batch, kept, keys, columns)}


def masked_shapes(draw: Random) -> Shapes:
    shapes = attention_shapes(draw)
    return {**shapes, "mask": (shapes["x"][2], shapes["y"][2])}


def image_shapes(draw: Random, window: int, groups: int = 1, dims: int = 2) -> Shapes:
    batch, channels, outputs = draw.choice((1, 2)), draw.choice((1, 2, 4, 16)), draw.choice((1, 4, 16))
    sizes = tuple(draw.choice((4, 7, 9)) for _ in range(dims))
    outputs, inputs = (channels, 1) if groups != 1 else (outputs, channels)
    return {"x": (batch, channels, *sizes), "weight": (outputs, inputs, *(window,) * dims), "bias": (outputs,)}


def images(draw: Random) -> Shapes:
    return {"x": image_shapes(draw, 1)["x"]}


def rows(draw: Random) -> Shapes:
    return {"x": tuple(size(draw) for _ in range(draw.choice((2, 3))))}


def lstm_shapes(draw: Random) -> Shapes:
    columns, hidden = size(draw), draw.choice((4, 7))
    return {
        "x": (draw.choice((1, 3)), draw.choice((1, 2, 5)), columns),
        "b_input": (4 * hidden, columns),
        "a_hidden": (4 * hidden, hidden),
    }


def lstm_of(x: torch.Tensor, a_hidden: torch.Tensor, b_input: torch.Tensor) -> torch.Tensor:
    states = [x.new_zeros(1, x.shape[1], a_hidden.shape[1]) for _ in range(2)]
    return torch.lstm(x, states, [b_input, a_hidden], False, 1, 0.0, False, False, False)[0]


def attention(**options: Any) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, y, z, mask, **options)

    return run


def taken(x: torch.Tensor, count: int) -> torch.Tensor:
    return torch.arange(count) % len(x)


def sorted_rows(x: torch.Tensor) -> torch.Tensor:
    """The gradient is a function of the values alone. That of `x.sort(0)[0]` depends on the order of values that are
    equal up to rounding, which the true result does not tell."""
    values = x.sort(0)[0]
    return values.detach() + (values**3).mean(0, keepdim=True)


CONSUMERS: dict[str, Consumer] = {
    "linear": Consumer(linear_shapes, lambda x, weight, bias: F.linear(x, weight, bias)),
    "linear without bias": Consumer(linear_shapes, lambda x, weight, bias: F.linear(x, weight)),
    "linear, gelu": Consumer(linear_shapes, lambda x, weight, bias: F.gelu(F.linear(x, weight, bias))),
    "linear, residual": Consumer(
        lambda draw: (lambda s: {**s, "y": (s["x"][0], s["bias"][0])})(linear_shapes(draw)),
        lambda x, y, weight, bias: F.relu(F.linear(x, weight, bias) + y),
    ),
    "addmm": Consumer(linear_shapes, lambda x, weight, bias: torch.addmm(bias, x, weight.t())),
    "matmul": Consumer(matrices, lambda x, y: x @ y),
    "bmm": Consumer(batches, lambda x, y: torch.bmm(x, y)),
    "bmm of a transposed one": Consumer(batches, lambda x, y: torch.bmm(y.mT, x.mT)),
    "attention": Consumer(attention_shapes, attention()),
    "causal attention": Consumer(attention_shapes, attention(is_causal=True)),
    "masked attention": Consumer(masked_shapes, attention()),
    "attention of shared heads": Consumer(lambda draw: attention_shapes(draw, True), attention(enable_gqa=True)),
    "convolution": Consumer(
        lambda draw: image_shapes(draw, 3), lambda x, weight, bias: F.conv2d(x, weight, bias, padding=1)
    ),
    "convolution with a stride": Consumer(
        lambda draw: image_shapes(draw, 3), lambda x, weight, bias: F.conv2d(x, weight, bias, stride=2)
    ),
    "convolution, relu": Consumer(
        lambda draw: image_shapes(draw, 2), lambda x, weight, bias: F.relu(F.conv2d(x, weight, bias))
    ),
    "pointwise convolution": Consumer(lambda draw: image_shapes(draw, 1), lambda x, weight, bias: F.conv2d(x, weight)),
    "depthwise convolution": Consumer(
        lambda draw: image_shapes(draw, 3, groups=0),
        lambda x, weight, bias: F.conv2d(x, weight, bias, padding=1, groups=x.shape[1]),
    ),
    "convolution of one dimension": Consumer(
        lambda draw: image_shapes(draw, 3, dims=1), lambda x, weight, bias: F.conv1d(x, weight, bias)
    ),
    "transposed convolution": Consumer(
        lambda draw: (lambda s: {**s, "weight": (s["x"][1], *s["weight"][:1], 2, 2)})(image_shapes(draw, 2)),
        lambda x, weight, bias: F.conv_transpose2d(x, weight, bias, stride=2),
    ),
    "lstm": Consumer(lstm_shapes, lstm_of, SINGLE),
    "softmax": Consumer(rows, lambda x: x.softmax(-1)),
    "sums": Consumer(rows, lambda x: x.sum(0) + x.sum(-1).sum()),
    "running sums": Consumer(rows, lambda x: x.cumsum(0)),
    "largest": Consumer(rows, lambda x: x.max(-1)[0]),
    "norm": Consumer(rows, lambda x: normed(x * 3)),
    "group norm": Consumer(images, lambda x: F.group_norm(x, 1)),
    "batch norm": Consumer(
        lambda draw: {"x": (4, *images(draw)["x"][1:])}, lambda x: F.batch_norm(x, None, None, training=True), SINGLE
    ),
    "largest of windows": Consumer(images, lambda x: F.max_pool2d(x, 2)),
    "means of windows": Consumer(images, lambda x: F.avg_pool2d(x, 2)),
    "interpolation": Consumer(images, lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "cat": Consumer(matrices, lambda x, y: torch.cat([x.t(), y[:1].expand(1, y.shape[1])[:, :1].expand(1, len(x))])),
    "picked rows": Consumer(rows, lambda x: x[taken(x, 5)]),
    "embedding": Consumer(matrices, lambda x, y: F.embedding(taken(x, 4), x)),
    "bag": Consumer(matrices, lambda x, y: F.embedding_bag(taken(x, 4), x, torch.tensor([0, 2])), SINGLE),
    "distances": Consumer(matrices, lambda x, y: F.pdist(x), SINGLE),
    "distances of two": Consumer(matrices, lambda x, y: torch.cdist(x, y.t() + 1), SINGLE),
    "weight norm": Consumer(matrices, lambda x, y: torch._weight_norm(x, x[:, :1].abs() + 1, 0), SINGLE),
    "sorted": Consumer(rows, sorted_rows),
}

__all__ = ["COMPUTED", "CONSUMERS", "Consumer"]
