"""Small programs with sizes for a GPU, each for one kind of kernel: `bench.graph_launches` records their launches.

    run, inputs = GRAPHS["softmax"]()          on torch's default device; `run` is compiled, then called with the inputs

A graph whose name ends in `, training` is run forward and backward; its inputs and weights get gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Built = tuple[Callable[..., Any], tuple[Tensor, ...]]
HALF = torch.bfloat16
TRAINING = ", training"


def random_tensor(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def labels(rows: int, classes: int) -> Tensor:
    return torch.randint(classes, (rows,))


def applied_to(fn: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = HALF) -> Callable[[], Built]:
    return lambda: (fn, tuple(random_tensor(*shape, dtype=dtype) for shape in shapes))


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + turned * sin


def masked_softmax(scores: Tensor) -> Tensor:
    n = scores.shape[-1]
    mask = torch.ones(n, n, dtype=torch.bool, device=scores.device).tril()
    return torch.softmax((scores * 0.125).masked_fill(~mask, float("-inf")), -1)


def twelve_softmaxes(x: Tensor) -> Tensor:
    for k in range(12):
        x = torch.softmax(x.transpose(0, 1) * (k + 1.0), -1)
    return x


def adam(*given: Tensor) -> None:
    for w, g, m, v in zip(*(given[k::4] for k in range(4)), strict=True):
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        w.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def mixture(x: Tensor, gate: Tensor) -> Tensor:
    """The router of a mixture of experts: the best two of 64 and their weights."""
    weights, chosen = torch.softmax((x @ gate).float(), -1).topk(2, -1)
    return (weights / weights.sum(-1, keepdim=True)).to(x.dtype), chosen


class Convolved(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())


class Head(nn.Module):
    """A language model's last product and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(768, 50257, bias=False, dtype=HALF)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(x).float(), y)


class Perceptron(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(1024, 4096, dtype=HALF), nn.GELU(), nn.Linear(4096, 1024, dtype=HALF), nn.Dropout(0.1)
        )


WIDE, LONG, IMAGE = (4096, 4096), (64, 131072), (32, 64, 56, 56)
F32 = torch.float32

GRAPHS: dict[str, Callable[[], Built]] = {
    "gelu and bias": applied_to(lambda x, b: F.gelu(x + b), WIDE, (4096,)),
    "swiglu": applied_to(swiglu, WIDE, WIDE),
    f"swiglu{TRAINING}": applied_to(swiglu, WIDE, WIDE),
    "group norm and silu": applied_to(
        lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)), (8, 320, 64, 64), (320,), (320,)
    ),
    "softmax": applied_to(lambda x: torch.softmax(x, -1), WIDE),
    "softmax of long rows": applied_to(lambda x: torch.softmax(x, -1), LONG, dtype=F32),
    "softmax with a mask": applied_to(masked_softmax, (4, 12, 512, 512)),
    "twelve softmaxes": applied_to(twelve_softmaxes, (1024, 1024), dtype=F32),
    f"log softmax{TRAINING}": applied_to(lambda x: F.log_softmax(x, -1), (4096, 8192)),
    f"cross entropy{TRAINING}": lambda: (F.cross_entropy, (random_tensor(4096, 50257), labels(4096, 50257))),
    f"head and loss{TRAINING}": lambda: (Head(), (random_tensor(4096, 768), labels(4096, 50257))),
    "layer norm": applied_to(lambda x, w, b: F.layer_norm(x, (4096,), w, b), WIDE, (4096,), (4096,)),
    f"layer norm{TRAINING}": applied_to(lambda x, w, b: F.layer_norm(x, (4096,), w, b), WIDE, (4096,), (4096,)),
    f"rms norm{TRAINING}": applied_to(lambda x, w: F.rms_norm(x, (4096,), w), WIDE, (4096,)),
    f"convolution, batch norm, relu{TRAINING}": lambda: (Convolved(), (random_tensor(*IMAGE, dtype=F32),)),
    "variance": applied_to(lambda x: x.var(1), WIDE, dtype=F32),
    "running sum": applied_to(lambda x: x.cumsum(1), WIDE, dtype=F32),
    "sum of columns": applied_to(lambda x: x.sum(0), (1 << 16, 1024), dtype=F32),
    "sum of all": applied_to(lambda x: (x * x).sum(), WIDE, dtype=F32),
    "argmax of long rows": applied_to(lambda x: x.argmax(1), (4096, 50257)),
    "transpose": applied_to(lambda x: (x * 2).t().contiguous(), WIDE),
    "mixed layouts": applied_to(lambda x, y: x.sin() + y.t(), WIDE, WIDE, dtype=F32),
    "index_add": lambda: (
        lambda x, i, y: x.index_add(0, i, y * 2),
        (random_tensor(8192, 1024, dtype=F32), labels(4096, 8192), random_tensor(4096, 1024, dtype=F32)),
    ),
    "embedding and norm": lambda: (
        lambda i, table: F.layer_norm(F.embedding(i, table), (1024,)),
        (labels(8192, 50257), random_tensor(50257, 1024)),
    ),
    f"dropout and residual{TRAINING}": applied_to(lambda x, y: F.dropout(x, 0.1) + y, WIDE, WIDE),
    "rotary embedding": applied_to(rope, (4, 32, 2048, 128), (2048, 128), (2048, 128)),
    "adam": applied_to(adam, *([(1024, 1024)] * 32), dtype=F32),
    f"perceptron{TRAINING}": lambda: (Perceptron(), (random_tensor(8192, 1024),)),
    "router": applied_to(mixture, (8192, 1024), (1024, 64)),
    "join and pad": applied_to(lambda x, y: F.pad(torch.cat((x, y.relu()), 1), (0, 64)), WIDE, WIDE),
}
