"""Dictionaries read as a whole after single keys were written: contents, order, and the caller's dictionary."""

import collections

import pytest
import torch

from .harness import program

KINDS = {
    "dict": dict,
    "ordered": collections.OrderedDict,
    "default": lambda **entries: collections.defaultdict(int, **entries),
}


def writes(x, d):
    d["a"] = d["a"] + 1
    d["c"] = 3
    return x * sum(d.values()), list(d.items())


def overwrites_unread(x, d):
    d["a"] = 5
    return x * sum(d.values()), {**d}


def deletes_and_writes_again(x, d):
    d["a"] = 5
    del d["b"]
    d["b"] = 1
    return x * len(d), list(d), d.copy()


def pops(x, d):
    d["a"] += 1
    d.pop("b", None)
    return x * len(d), dict(d)


def counts(x, d):
    d["n"] = d.get("n", 0) + 1
    return x * 2, dict(d), d["n"]


def stores_tensors(x, d):
    d["t"] = x * 2
    return [key for key in d], sum(v.sum() if torch.is_tensor(v) else v for v in d.values())


def updates_then_compares(x, d):
    d["a"] = 7
    return x + (d == {"a": 7, "b": 2}), "a" in d, max(d.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "fn", [writes, overwrites_unread, deletes_and_writes_again, pops, counts, stores_tensors, updates_then_compares]
)
def test_read_as_a_whole_after_writes(fn, kind):
    def world():
        d = KINDS[kind](a=1, b=2)
        return lambda x: fn(x, d), [(torch.ones(2) * i,) for i in range(4)], lambda: (list(d.items()), type(d).__name__)

    program(world, breaks=0)()


def test_the_caller_changes_what_was_overwritten_and_what_was_not():
    def world():
        d = {"a": 1, "b": 2}

        def fn(x):
            d["a"] = 0
            return x * sum(d.values()), list(d)

        def caller(x, key, value):
            d[key] = value
            return fn(x)

        calls = [(torch.ones(2), *change) for change in (("a", 9), ("b", 3), ("a", 4), ("c", 1), ("b", 3))]
        return caller, calls, lambda: list(d.items())

    program(world)()
