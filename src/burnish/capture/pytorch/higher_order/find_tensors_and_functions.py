"""The tensors and functions that values hold: in containers, and in objects that the program has made.

    find_tensors_and_functions(m, Pair(x, [y]))        x, y

No code of the program runs, as it would if torch took the values apart: a class registered as a node of trees has
functions for that, with effects of their own.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import torch

from ...guards.container_reads_past_overrides import elements_of
from ...interpreter.frames import Generator
from ...interpreter.reads_past_overrides import dict_of
from ...numbers.live_scalars import Live

IS_MADE_IN_PYTHON = 1 << 9
LEAVES = (torch.Tensor, FunctionType)
OTHERS = (type, ModuleType, Live, Generator)
SEQUENCES = (tuple, list, set, frozenset, collections.deque)


def find_tensors_and_functions(m: Any, values: Any) -> Iterator[Any]:
    """Objects from outside are left out: what they hold now is known to the heap."""
    found, waiting = {id(values)}, [values]
    while waiting:
        value = waiting.pop()
        if issubclass(type(value), LEAVES):
            yield value
            continue
        for part in parts_of(m, value):
            if id(part) not in found:
                found.add(id(part))
                waiting.append(part)


def parts_of(m: Any, value: Any) -> Iterator[Any]:
    kind = type(value)
    if issubclass(kind, SEQUENCES):
        yield from elements_of(value)
    elif issubclass(kind, dict):
        yield from dict.values(value)
    elif not kind.__flags__ & IS_MADE_IN_PYTHON or issubclass(kind, OTHERS) or m.heap.origin_of(value) is not None:
        return
    table = dict_of(value)
    if type(table) is dict:
        yield from table.values()
    for field in (field for base in kind.__mro__ for field in vars(base).values()):
        if type(field) is MemberDescriptorType:
            with contextlib.suppress(AttributeError):  # it has not been set
                yield field.__get__(value, kind)
