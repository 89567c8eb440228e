"""Reads by native code: guards a value, or makes it plain, before C code looks into it.

    settle_all(m, key)        # live numbers inside become plain ones, guarded
    expose(m, items)          # the content of a container from outside is guarded
    check_key(m, key)         # no __hash__ of the user's may run in C code

The rules of operators, calls and builtins share these.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

import torch

from ... import breaks
from ...engine.interpreted_or_native import find_on_type, is_user_type
from ...guards.container_reads_past_overrides import elements_of, items_of
from ...guards.value_or_identity import UNEXPOSED
from ...interpreter.frames import RAISES
from ...numbers import constant_arrays, numpy_tables
from ...numbers.live_scalars import Live
from ...numbers.live_scalars import settled as settled
from ..attributes.class_attributes import guard_text
from . import user_keys
from .value_kinds import BUILTIN_CONTAINERS, SIMPLE, python_method


def settle_all(m: Any, value: Any, depth: int = 0, converts: bool = True, walked: dict[int, int] | None = None) -> None:
    """Native code is about to read live values in ``value``: guard them. ``converts``: it may ask for numbers.
    ``walked``: the depths at which containers were met, which may hold each other many times."""
    kind = type(value)
    if kind in UNEXPOSED:
        return
    if issubclass(kind, Live):
        value.settle()
    elif kind in numpy_tables.NUMBERS:
        if constant_arrays.may_vary(m, value) and not constant_arrays.are_settled(m, [value]):
            m.stop(breaks.OPAQUE_CALL, f"a {kind.__qualname__} of NumPy's, which may be another one in the next call")
    elif kind is numpy_tables.ARRAY:
        if not constant_arrays.is_known(m, value):
            m.stop(breaks.DATA_READ, "an array that is read by native code")
    elif issubclass(kind, type):
        guard_text(m, value)
    elif depth > 20:
        return
    elif issubclass(kind, (tuple, list, set, frozenset, collections.deque, dict)):
        walked = {} if walked is None else walked
        if walked.get(id(value), depth + 1) <= depth:
            return
        walked[id(value)] = depth
        is_table = issubclass(kind, dict)
        for part in itertools.chain.from_iterable(items_of(value)) if is_table else elements_of(value):
            settle_all(m, part, depth + 1, converts, walked)
    elif kind is slice:
        settle_all(m, (value.start, value.stop, value.step))
    elif converts and is_user_type(kind) and any(python_method(m, value, name) for name in CONVERSIONS):
        m.stop(breaks.OPAQUE_CALL, f"native code that may convert a {kind.__qualname__} to a number by its own method")


CONVERSIONS = ("__index__", "__float__", "__int__", "__complex__")


def expose(m: Any, value: Any, reads_order: bool = True) -> None:
    if type(value) in SIMPLE:
        return
    if issubclass(type(value), BUILTIN_CONTAINERS):
        m.heap.expose(value, reads_order=reads_order)


def check_numbers(m: Any, values: Any) -> None:
    """Stop where native code would read a number of NumPy's that is not guarded."""
    for value in elements_of(values):
        if type(value) in numpy_tables.NUMBERS:
            settle_all(m, value)


def check_key(m: Any, key: Any, container: type | None = None) -> Any:
    """A key is about to be hashed by C code. RAISES if that will raise an error of the key's own method. ``container``:
    dict or set, which from 3.14 on is part of the error."""
    return _check_key(m, key, container, key)


def hash_for(container: type | None, key: Any) -> None:
    if container is dict:
        {key: None}  # noqa: B018
    elif container is set:
        {key}  # noqa: B018
    else:
        hash(key)


def refuse_unhashed_key(m: Any, key: Any, what: str) -> None:
    """Stop where C code may not hash the key that it is given, if hashing it raises an error or runs Python code."""
    if issubclass(type(key), tuple):
        for part in elements_of(key):
            refuse_unhashed_key(m, part, what)
    elif find_on_type(type(key), "__hash__") is None or user_keys.hashes_in_python(m, type(key)):
        m.stop(breaks.OPAQUE_CALL, what)


def _check_key(m: Any, key: Any, container: type | None, whole: Any) -> Any:
    """``whole``: the key that this is part of."""
    kind = type(key)
    if kind in SIMPLE and (kind is not slice or slice.__hash__ is not None):
        return None
    if kind in numpy_tables.NUMBERS:
        settle_all(m, key)
        return None
    if find_on_type(kind, "__hash__") is None:
        m.plainly(hash_for, container, whole)
    elif issubclass(type(key), Live):
        key.settle()
    elif issubclass(type(key), tuple):
        if any([_check_key(m, part, container, whole) is RAISES for part in elements_of(key)]):
            return RAISES
    elif issubclass(type(key), torch.Tensor):
        m.heap.identity_matters.add(torch.Tensor)
    elif user_keys.hashes_in_python(m, kind):
        return user_keys.check(m, key)
    else:
        m.heap.identity_matters.add(kind)
    return None
