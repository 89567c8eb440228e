"""Calls that raise for some data: how each is written, with arguments that pass and arguments that fail.

    FailingCall("F.embedding(q, p)", good=([0, 2], TABLE), bad=([0, 9], TABLE))

A call is source text over `p` and `q`, so that programs with it are programs like a user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class FailingCall(NamedTuple):
    text: str
    good: tuple[torch.Tensor, ...]
    bad: tuple[torch.Tensor, ...]
    name: str


def whole(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


def real(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


TABLE = torch.arange(12.0).view(4, 3)
ROW = torch.arange(5.0)
SCORES = torch.linspace(-1, 1, 12).view(4, 3)
SPREAD = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
NOT_POSITIVE = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])


def of_index(text: str, source: torch.Tensor, good: Sequence[int], bad: Sequence[int]) -> FailingCall:
    return FailingCall(text, (source, whole(*good)), (source, whole(*bad)), text)


def of_divisor(text: str, dtype: torch.dtype = torch.int64) -> FailingCall:
    p = torch.tensor([7, -9, 4], dtype=dtype) if dtype is not torch.uint8 else torch.tensor([7, 9, 4], dtype=dtype)
    return FailingCall(
        text, (p, torch.tensor([2, 3, 1], dtype=dtype)), (p, torch.tensor([2, 0, 1], dtype=dtype)), f"{text} {dtype}"
    )


def of_matrix(text: str, bad: torch.Tensor) -> FailingCall:
    return FailingCall(text, (SPREAD, TABLE), (bad, TABLE), text)


def of_condition(text: str) -> FailingCall:
    return FailingCall(text, (real(1, 2), TABLE), (real(-1, 2), TABLE), text)


DIVISIONS = (
    "p // q",
    "10 // q",
    "p % q",
    "10 % q",
    "torch.floor_divide(p, q)",
    "torch.remainder(p, q)",
    "torch.remainder(10, q)",
    "torch.fmod(p, q)",
    "p.fmod(q)",
    "torch.div(p, q, rounding_mode='floor')",
    "torch.div(p, q, rounding_mode='trunc')",
    "torch.fmod(p, q) + 1",
    "(p // q) * 2",
    "torch.gcd(p // q, p)",
)

PICKED_FROM_ROW = (
    "p[q]",
    "torch.zeros(5)[q]",
    "p[q] * 2",
    "torch.index_select(p, 0, q)",
    "p.index_select(0, q) + 1",
    "p.gather(0, q)",
    "torch.gather(p, 0, q).sin()",
    "torch.take(p, q)",
    "torch.take_along_dim(p, q)",
    "p.clone().index_add_(0, q, p[:2])",
    "p.index_add(0, q, p[:2])",
    "p.index_copy(0, q, p[:2])",
    "p.index_fill(0, q, 1.0)",
    "p.scatter(0, q, 1.0)",
    "p.scatter(0, q, p[:2])",
    "p.scatter_add(0, q, p[:2])",
    "p.scatter_reduce(0, q, p[:2], 'sum')",
    "torch.index_put(p, (q,), p[:2])",
    "p.clone().index_put_((q,), p[:2], accumulate=True)",
    "p.index_reduce(0, q, p[:2], 'amax')",
    "p.put(q, p[:2])",
    "F.one_hot(q, 5)",
)

CALLS: tuple[FailingCall, ...] = (
    *(of_divisor(text) for text in DIVISIONS),
    of_divisor("p // q", torch.int32),
    of_divisor("p % q", torch.uint8),
    of_divisor("torch.fmod(p, q)", torch.int8),
    *(of_index(text, ROW, (1, 3), (1, 7)) for text in PICKED_FROM_ROW),
    of_index("p[q]", ROW, (1, -2), (1, -6)),
    of_index("p[:, q]", TABLE, (1, 2), (1, 3)),
    of_index("p[q, q]", TABLE, (1, 2), (1, 3)),
    of_index("p[q].sum(1)", TABLE, (1, 2), (1, 4)),
    of_index("p.index_select(1, q)", TABLE, (1, 2), (1, 3)),
    of_index("F.embedding(q, p)", TABLE, (1, 3), (1, 4)),
    of_index("F.embedding(q, p).tanh() + 1", TABLE, (1, 3), (1, -1)),
    of_index("F.embedding_bag(q[None], p)", TABLE, (1, 3), (1, 4)),
    of_index("F.nll_loss(p[:2], q)", SCORES, (1, 2), (1, 3)),
    of_index("F.cross_entropy(p[:2], q)", SCORES, (1, 2), (1, 3)),
    of_index("F.cross_entropy(p[:2], q, reduction='sum')", SCORES, (1, -100), (1, -1)),
    of_index("F.multi_margin_loss(p[:2], q)", SCORES, (1, 2), (1, 3)),
    of_index("F.multilabel_margin_loss(p[0, :2], q)", SCORES, (1, -1), (1, 3)),
    of_index("torch.bincount(q, minlength=9)", ROW, (1, 3), (1, -3)),
    of_index("torch.repeat_interleave(p[:2], q)", ROW, (1, 3), (1, -3)),
    of_index("torch.repeat_interleave(p[:2], q, output_size=4)", ROW, (1, 3), (1, 4)),
    of_index("torch.unravel_index(q, (2, 3))[0]", ROW, (1, 3), (1, -3)),
    of_index("F.max_unpool1d(p[None, None, :2], q[None, None], 2)", ROW, (1, 3), (1, 9)),
    of_index("torch.zeros(3)[q[1]]", ROW, (1, 2), (1, 3)),
    of_index("p[q[0], None]", TABLE, (1, 2), (4, 3)),
    FailingCall("torch.multinomial(p, 2)", (real(1, 2, 3), TABLE), (real(1, -2, 3), TABLE), "multinomial"),
    FailingCall("torch.bernoulli(p)", (real(0, 1, 1), TABLE), (real(0, 2, 1), TABLE), "bernoulli"),
    FailingCall("torch.normal(p, p)", (real(0, 0, 0), TABLE), (real(0, -2, 1), TABLE), "normal"),
    FailingCall("torch.poisson(p)", (real(0, 0, 0), TABLE), (real(0, -2, 1), TABLE), "poisson"),
    FailingCall("torch.binomial(p, p)", (real(0, 0, 0), TABLE), (real(-1, 0, 1), TABLE), "binomial"),
    FailingCall(
        "F.binary_cross_entropy(p, p)", (real(0, 1, 0.5), TABLE), (real(0, 2, 1), TABLE), "binary_cross_entropy"
    ),
    FailingCall(
        "F.ctc_loss(p[:, None].log_softmax(-1), q[None], torch.tensor([4]), q[:1])",
        (SCORES, whole(1, 2)),
        (SCORES, whole(-1, 2)),
        "ctc_loss",
    ),
    of_matrix("torch.linalg.cholesky(p)", NOT_POSITIVE),
    of_matrix("torch.linalg.cholesky(p) @ p", NOT_POSITIVE),
    of_matrix("torch.linalg.inv(p)", SINGULAR),
    of_matrix("torch.inverse(p)", SINGULAR),
    of_matrix("torch.linalg.solve(p, p)", SINGULAR),
    of_matrix("torch.linalg.tensorinv(p, ind=1)", SINGULAR),
    of_matrix("torch.linalg.eigh(p * (p / p))[0]", torch.zeros(2, 2)),
    of_matrix("torch.linalg.svdvals(p / p)", torch.zeros(2, 2)),
    of_matrix("torch.linalg.pinv(p / p)", torch.zeros(2, 2)),
    of_matrix("torch.linalg.lstsq(p, p, driver='gels')[0]", SPREAD * torch.nan),
    of_condition("torch._assert_async((p > 0).all())"),
    of_condition("torch._assert_async((p > 0).all(), 'not positive')"),
    of_condition("torch.histc(p.sqrt(), 3)"),
    of_condition("torch.quantile(TABLE, p.clamp(max=1))"),
    of_condition("checked((p > 0).all())"),
)
"""Those whose failing arguments fail nowhere are left out by the runner: it asks eager first."""
