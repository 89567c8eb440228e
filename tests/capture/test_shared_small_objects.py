"""Small immutable objects keep their identity: one that is held twice is one object in the result, too."""

import sys

import pytest
import torch

import burnish


@pytest.mark.parametrize("make", [lambda n: slice(n, n + 1), lambda n: range(n, 9), lambda n: torch.Size([n])])
def test_one_object_held_twice_is_one_object(make):
    def fn(x, n):
        made = make(n)
        held = [made, (made,)]
        bool(x.sum() > 0)
        return made, held, made is held[0], held[0] is held[1][0]

    compiled = burnish.compile(fn, backend="eager")
    for n in (1, 1, 1, 2, 3):
        made, held, *same = compiled(torch.ones(2), n)
        assert made == make(n) and held == [made, (made,)]
        assert same == [True, True] and held[0] is made and held[1][0] is made


class Long:
    def __len__(self):
        return sys.maxsize + 1


def test_a_length_beyond_an_index_is_refused():
    compiled = burnish.compile(lambda x, value: (x + 1, len(value)), backend="eager")
    for _ in range(3):
        with pytest.raises(OverflowError, match="cannot fit 'int' into an index-sized integer"):
            compiled(torch.ones(2), Long())
