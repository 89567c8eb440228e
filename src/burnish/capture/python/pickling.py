"""``pickle`` of builtin data while tracing: text, numbers, containers, and iterators over them.

    pickle.loads(pickle.dumps(iter(names)))        # C code reads and makes builtin objects alone: a native call

Objects of other classes are pickled by methods of theirs, which C code would call: a graph break.
"""

from __future__ import annotations

import _compat_pickle
import collections
import io
import pickle
from typing import Any

from ...captured_graph.warnings_already_given import filtered
from ...concurrency.outside_errors import reraise_from_outside
from .. import breaks
from ..interpreter.frames import Generator
from ..numbers.live_scalars import Live
from .operators import guard_before_native_read, iteration, value_kinds

CONTAINERS = frozenset((list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict))
NAMES = {
    "builtins": "list tuple dict set frozenset bytearray range slice complex iter reversed enumerate zip",
    "collections": "deque OrderedDict",
    "_codecs": "encode",
    "itertools": "count cycle repeat chain compress islice pairwise product permutations combinations zip_longest "
    "combinations_with_replacement",
}
ALLOWED = frozenset((module, name) for module, names in NAMES.items() for name in names.split())
DEEPEST = 50
UNSHARED = frozenset((int, float, bool, type(None)))
"""Kinds that ``pickle`` writes each time that it meets them."""


def is_plain(m: Any, value: Any, seen: set, depth: int = 0) -> bool:
    """Whether C code pickles a value by itself, in a way that only what is guarded decides: neither the order of a set,
    nor whether equal strings or tuples are one object. ``seen``: those so far."""
    kind = type(value)
    if kind in UNSHARED or issubclass(type(value), Live):
        return True
    if depth > DEEPEST or kind is slice:
        return False
    if kind in value_kinds.SIMPLE:
        return kind.__module__ != "torch" and is_first(value, seen)
    if kind in CONTAINERS:
        if kind in (set, frozenset) and len(value) > 1:
            return False
        parts = [*value.keys(), *value.values()] if issubclass(type(value), dict) else value
        if not all(is_plain(m, part, seen, depth + 1) for part in parts):
            return False
        return kind not in (tuple, frozenset) or not value or is_first(settled(value, {}), seen)
    if (kind in iteration.ITERATORS or kind is Generator) and m.heap.origin_of(value) is None:
        with filtered("ignore"):
            try:
                made = value.__reduce_ex__(2)
            except TypeError:
                return False
        function = made[0]
        allowed = (function.__module__, getattr(function, "__name__", "")) in ALLOWED
        return allowed and not holds_live(made[1:]) and is_plain(m, made[1:], seen, depth + 1)
    return False


def is_first(value: Any, seen: set) -> bool:
    key = type(value), repr(value)
    is_new = key not in seen
    seen.add(key)
    return is_new


def holds_live(value: Any) -> bool:
    if issubclass(type(value), dict):
        value = [*value.keys(), *value.values()]
    return issubclass(type(value), Live) or type(value) in CONTAINERS and any(map(holds_live, value))


def settled(value: Any, made: dict[int, Any]) -> Any:
    """A copy of plain data with plain numbers for live ones, of the same shape. ``made``: the copies by identity."""
    kind = type(value)
    if issubclass(type(value), Live):
        return value.settle()
    if kind not in CONTAINERS:
        return value
    if id(value) not in made:
        if issubclass(type(value), dict):
            copy = kind((settled(k, made), settled(v, made)) for k, v in value.items())
        elif kind is collections.deque:
            copy = kind((settled(part, made) for part in value), value.maxlen)
        else:
            copy = kind(settled(part, made) for part in value)
        made[id(value)] = copy
    return made[id(value)]


def dumps(m: Any, args: tuple, kwargs: dict) -> Any:
    if not args or not is_plain(m, args[0], set()):
        kind = type(args[0]).__qualname__ if args else "nothing"
        return m.stop(breaks.OPAQUE_CALL, f"pickle.dumps() of a {kind} that is not builtin data, or shares parts")
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
        guard_before_native_read.settle_all(m, value)
    held = [settled(value, {}) if holds_live(value) else value for value in args]
    return m.plainly(pickle.dumps, *held, **kwargs)


class NotPlain(Exception):
    pass


class PlainUnpickler(pickle.Unpickler):
    """Makes builtin objects alone."""

    def find_class(self, module: str, name: str) -> Any:
        new = _compat_pickle.NAME_MAPPING.get((module, name), (_compat_pickle.IMPORT_MAPPING.get(module, module), name))
        if new not in ALLOWED:
            raise NotPlain
        return super().find_class(module, name)


def is_plain_pickle(data: Any) -> bool:
    if type(data) is not bytes:
        return False
    try:
        PlainUnpickler(io.BytesIO(data)).load()
    except NotPlain:
        return False
    except Exception as error:  # what loads() raises as well
        reraise_from_outside(error)
        return True
    return True


def loads(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs or not is_plain_pickle(args[0]):
        return m.stop(breaks.OPAQUE_CALL, "pickle.loads() of more than builtin data")
    value = m.plainly(pickle.loads, *args)
    return m.made(value) if issubclass(type(value), value_kinds.CHANGEABLE) else value


HANDLERS: dict[Any, Any] = {pickle.dumps: dumps, pickle.loads: loads}
