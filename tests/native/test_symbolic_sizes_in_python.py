"""Python code on tensor sizes: right for every size, whether the size stays symbolic or is specialized."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from .compare_sizes import called_with

SIZES = (8, 9, 30, 9, 2, 3, 17, 12)

PROGRAMS = {
    "shape eq": lambda x: x + 1 if x.shape == (9, 16) else x - 1,
    "shape eq2": lambda x: x + 1 if x.shape == x.sin().shape else x - 1,
    "shape ne": lambda x: x + 1 if x.shape[:1] != (9,) else x - 1,
    "shape lt": lambda x: x + 1 if x.shape < (9, 20) else x - 1,
    "concat": lambda x: x.new_zeros(x.shape[:1] + (3,)),
    "list": lambda x: x.reshape([*x.shape, 1]).sum(-1).reshape(list(x.shape)),
    "sorted": lambda x: (x.sum(), sorted(x.shape), max(x.shape), min(x.shape), sum(x.shape)),
    "prod": lambda x: x.reshape(math.prod(x.shape)),
    "numel": lambda x: x.reshape(x.shape.numel()) * x.numel(),
    "divmod": lambda x: (
        x.sum(),
        divmod(x.shape[0], 3),
        x.shape[0] // 3,
        x.shape[0] % 4,
        -x.shape[0],
        abs(-x.shape[0]),
    ),
    "float": lambda x: (x * float(x.shape[0]), x.shape[0] / 2, x.shape[0] ** 2, 2 ** x.shape[0]),
    "dict": lambda x: ({x.shape[0]: x + 1}[len(x)], {x.shape: 1}),
    "set": lambda x: (x.sum(), {x.shape[0], 16}),
    "range": lambda x: [k for k in range(x.shape[0])],
    "enumerate": lambda x: [(k, row.sum()) for k, row in enumerate(x)],
    "zip": lambda x: [a + b for a, b in zip(x, x)],
    "bits": lambda x: (x.sum(), x.shape[0] & 3, x.shape[0] << 2, ~x.shape[0], x.shape[0] ^ 5),
    "is": lambda x: x + 1 if x.shape[0] is not None else x,
    "isinstance": lambda x: (
        x + 1,
        isinstance(x.shape[0], int),
        type(x.shape[0]),
        isinstance(x.shape, torch.Size),
        type(x.shape),
    ),
    "hash": lambda x: (x + 1, hash(x.shape), hash(x.shape[0])),
    "str mult": lambda x: (x + 1, "a" * x.shape[0], [0] * len(x)),
    "index": lambda x: x[x.shape[0] - 1] + x[-x.shape[0]] + x[x.shape[0] // 2],
    "slices": lambda x: (x[: x.shape[0] - 1] + x[1 : x.shape[0]], x[::2], x[1::3] * 2),
    "neg step": lambda x: x[x.shape[0] // 3 :],
    "stack size": lambda x: torch.tensor([x.shape[0], x.shape[1]]) + x.sum().long(),
    "tensor of size": lambda x: x * torch.tensor(x.shape[0]),
    "full": lambda x: torch.full((x.shape[0],), x.shape[0] * 1.5) + x[:, 0],
    "linspace": lambda x: torch.linspace(0, 1, x.shape[0]) + x[:, 0],
    "eye": lambda x: torch.eye(x.shape[0]) @ x,
    "arange step": lambda x: torch.arange(0, 2 * x.shape[0], 2) + x[:, 0],
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "roll": lambda x: x.roll(1, 0) + x.roll(x.shape[0] // 2, 0),
    "narrow": lambda x: x.narrow(0, 1, x.shape[0] - 1),
    "select": lambda x: x.select(0, x.shape[0] - 1),
    "unfold": lambda x: x.unfold(0, 2, 1).sum(-1),
    "tri": lambda x: torch.triu(torch.ones(x.shape[0], x.shape[0]), 1) @ x,
    "one_hot": lambda x: F.one_hot(x.argmax(1), 16) + x.long(),
    "cdist": lambda x: torch.cdist(x, x),
    "norm": lambda x: F.normalize(x, dim=0),
    "std": lambda x: x.std(0) + x.var(0, unbiased=False),
    "gn": lambda x: F.group_norm(x[None].transpose(1, 2), 4),
    "bn": lambda x: F.batch_norm(x, None, None, training=True),
    "interp": lambda x: F.interpolate(x[None, None], size=(x.shape[0] * 2, 8)),
    "pad neg": lambda x: F.pad(x, (0, 0, -1, 2)),
    "cat many": lambda x: torch.cat([x, x[:2], torch.zeros(x.shape[0], 16)]),
    "split sizes": lambda x: x.split([1, x.shape[0] - 1])[1] * 2,
    "chunk dim1": lambda x: x.chunk(4, 1)[2] + 1,
    "meshgrid": lambda x: sum(torch.meshgrid(torch.arange(x.shape[0]), torch.arange(4), indexing="ij")),
    "where eq": lambda x: torch.where(torch.arange(x.shape[0])[:, None] < x.shape[0] // 2, x, -x),
    "bool mask idx": lambda x: x[torch.ones(x.shape[0], dtype=torch.bool)],
    "nonzero": lambda x: (x > 0).nonzero().shape[1],
    "item": lambda x: x * x.sum().item(),
    "closure": (lambda: (lambda c: lambda x: (c.append(x.shape[0]), x + len(c) * 0)[1])([]))(),
    "std pop": lambda x: (x - x.mean(0)) / (x.shape[0] - 1),
    "sqrt": lambda x: x / math.sqrt(x.shape[0]),
    "log": lambda x: x * math.log(x.shape[0]),
    "ceil": lambda x: x[: math.ceil(x.shape[0] / 2)],
    "round": lambda x: (x.sum(), round(x.shape[0] / 3, 2), f"{x.shape[0] / 3:.3f}"),
    "walrus": lambda x: [n := x.shape[0], x + n][1],
    "try": lambda x: x.view(3, -1) if x.shape[0] % 3 == 0 else x,
    "contig": lambda x: (x.t().is_contiguous(), x.is_contiguous(), x.t().reshape(-1)),
    "stride": lambda x: (x.stride(), x.t().stride(), x.storage_offset(), x[1:].storage_offset()),
    "nbytes": lambda x: (x.nbytes, x.element_size(), x.sum()),
    "same size": lambda x: (x.is_same_size(x + 1), x.sum()),
    "broadcast_shapes": lambda x: torch.zeros(torch.broadcast_shapes(x.shape, (1, 16))) + x,
    "expand": lambda x: x.sum(0).expand(x.shape[0], -1) + x,
    "expand as": lambda x: x.sum(0).expand_as(x) + x,
    "as_strided": lambda x: x.as_strided((x.shape[0], 4), (16, 1)) + 1,
    "view dtype": lambda x: x.view(torch.int32).sum(),
    "outer": lambda x: torch.outer(x[:, 0], x[:, 1]),
    "kron": lambda x: torch.kron(x[:, :2], torch.ones(2, 2)),
    "bmm": lambda x: torch.bmm(x[None], x.t()[None]),
    "diag": lambda x: torch.diag(x[:, 0]) @ x,
    "trace": lambda x: (x @ x.t()).trace() + (x @ x.t()).diagonal().sum(),
    "cumprod": lambda x: x.cumprod(0) + x.cummax(0)[0],
    "sort": lambda x: x.sort(0)[0] + x.argsort(0),
    "median": lambda x: x.median(0)[0],
    "searchsorted": lambda x: torch.searchsorted(x[:, 0].sort()[0], x[:, 1].contiguous()),
    "index_add": lambda x: torch.zeros_like(x).index_add(0, torch.arange(x.shape[0]).flip(0), x),
    "scatter": lambda x: torch.zeros(x.shape[0], x.shape[0]).scatter(1, torch.arange(x.shape[0])[:, None], 1.0) @ x,
    "setitem": lambda x: [y := x.clone(), y.__setitem__((slice(1, None), 0), 5.0), y][2],
    "setitem2": lambda x: [y := torch.zeros(x.shape[0] + 2, 16), y.__setitem__(slice(1, -1), x), y][2],
}


@pytest.mark.falls_back(
    "numbers", "sizes", only=(r"index|neg step|stack size|tensor of size|roll|meshgrid|where eq|bool mask idx")
)
@pytest.mark.falls_back("numbers", only=r"slices")
@pytest.mark.falls_back("limit", only=r"closure")
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_in_python(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are too many variants
        called_with(PROGRAMS[name], [(torch.randn(n, 16),) for n in SIZES])
