"""Weak references over graph breaks."""

import weakref

import pytest
import torch

import burnish


class Held:
    pass


@pytest.mark.falls_back("refused")  # what calls a function at an object's end is not made again
@pytest.mark.parametrize("keyed", [False, True])
def test_weak_dictionaries_lose_what_goes_over_graph_breaks(keyed):
    def fn(x):
        table = weakref.WeakKeyDictionary() if keyed else weakref.WeakValueDictionary()
        kept = Held()
        for value in (kept, Held(), Held()):
            if keyed:
                table[value] = 1
            else:
                table[len(table)] = value
            if x.sum() > 0:
                x = x + 1
        del value
        before = len(table)
        del kept
        return before, len(table)

    compiled = burnish.compile(fn, backend="eager")
    assert [compiled(torch.ones(2)) for _ in range(4)] == [fn(torch.ones(2))] * 4
