"""The module text every generated program starts with: classes, helpers and globals it may use, and its calls' data.

It is text, so that a failing program is one self-contained file: its ``fn`` and ``calls()`` follow below it.
"""

PRELUDE = """\
import collections
import contextlib
import dataclasses
import functools
import itertools

import numpy as np
import torch


class Trouble(Exception):
    pass


class Box:
    limit = 3

    def __init__(self, value):
        self.value, self.count, self.history = value, 0, []

    @property
    def doubled(self):
        return self.value * 2

    @property
    def level(self):
        return self.count

    @level.setter
    def level(self, new):
        self.count = min(new, self.limit)

    def step(self, v, *, scale=1.0):
        self.count += 1
        self.value = self.value * 0.5 + v * scale
        return self.value

    def __call__(self, v):
        return self.step(v, scale=0.5)

    def __len__(self):
        return self.count

    def __contains__(self, n):
        return n <= self.count

    def __getitem__(self, i):
        return self.value[i]

    def __add__(self, other):
        return self.value + other


class Deep(Box):
    limit = 2

    def step(self, v, *, scale=1.0):
        out = super().step(v, scale=scale + 1.0)
        self.history.append(self.count)
        return out


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor
    name: str = "pair"

    def total(self):
        return self.left + self.right


Point = collections.namedtuple("Point", "a b")


class Watch:
    def __init__(self, name, quiet=False):
        self.name, self.quiet = name, quiet

    def __enter__(self):
        LOG.append("in " + self.name)
        return self

    def __exit__(self, kind, error, trace):
        LOG.append(f"out {self.name} {kind.__name__ if kind else None}")
        return self.quiet and kind is Trouble


@contextlib.contextmanager
def noted(n):
    print("enter", n)
    try:
        yield n + 1
    finally:
        print("leave", n)


def rows(m, skip=0):
    for i, row in enumerate(m):
        if i < skip:
            continue
        yield row
    return skip


def mixed(m, v=None, *rest, scale=1.0, **more):
    if v is not None:
        m = m + v
    for other in rest:
        m = m * other
    return m * scale + len(more)


def counted(inner):
    @functools.wraps(inner)
    def outer(*args, **kwargs):
        global TOTAL
        TOTAL = (TOTAL + 1) % 100
        return inner(*args, **kwargs)
    return outer


def opaque(m):
    return torch.from_numpy(np.square(m.detach().numpy()))


def make_mat(rows, seed):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed)).mul(4).round().div(4)


def make_vec(seed):
    return make_mat(1, seed)[0].clone()


LOG = []
TOTAL = 0
SETTINGS = {"scale": 0.5, "names": ["a", "b"]}
WEIGHT = make_mat(4, 90).requires_grad_(TRAINED)
LAYER = torch.nn.Linear(4, 4)
LAYER.weight.data.copy_(make_mat(4, 91))
LAYER.bias.data.copy_(make_vec(92))
LAYER.requires_grad_(TRAINED)
BOX = Box(make_vec(93))
NOTES = {}


def call(seed, rows=3, count=2, n=2, rate=0.5, flag=True, mode="fast", opt=False, alias=False, grad=False,
         strided=False, keys="ab"):
    x, y = make_mat(rows, seed), make_vec(seed + 1)
    if strided:
        x = x.t().contiguous().t()
    items = [make_mat(rows, seed + 2 + i) for i in range(count)]
    table = {key: make_vec(seed + 20 + i) for i, key in enumerate(keys)}
    if alias:
        items[:1], table["a"] = [x], x[0]
    if grad:
        x.requires_grad_()
        y.requires_grad_()
    return x, y, items, table, BOX, n, rate, flag, mode, make_vec(seed + 30) if opt else None

"""
