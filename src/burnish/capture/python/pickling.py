"""``pickle`` of builtin data while tracing: text, numbers, containers, and iterators over them.

    pickle.loads(pickle.dumps(iter(names)))        # C code reads and makes builtin objects alone: a native call

Objects of other classes are pickled by methods of theirs, which C code would call: a graph break.
"""

from __future__ import annotations

import _compat_pickle
import collections
import io
import pickle
import warnings
from typing import Any

from .. import breaks
from ..interpreter.frames import Generator
from ..numbers.live_scalars import Live
from .operators import iteration, prepare_native_reads, value_kinds

CONTAINERS = frozenset((list, tuple, dict, set, frozenset, bytearray, collections.deque, collections.OrderedDict))
NAMES = {
    "builtins": "list tuple dict set frozenset bytearray range slice complex iter reversed enumerate zip",
    "collections": "deque OrderedDict",
    "_codecs": "encode",
    "itertools": "count cycle repeat chain compress islice pairwise product permutations combinations zip_longest "
    "combinations_with_replacement",
}
ALLOWED = frozenset((module, name) for module, names in NAMES.items() for name in names.split())
DEEPEST = 50


def is_plain(m: Any, value: Any, depth: int = 0) -> bool:
    """Whether C code pickles a value by itself."""
    kind = type(value)
    if kind in value_kinds.SIMPLE:
        return kind.__module__ != "torch"
    if isinstance(value, Live):
        return True
    if depth > DEEPEST:
        return False
    if kind in CONTAINERS:
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return all(is_plain(m, part, depth + 1) for part in parts)
    if (kind in iteration.ITERATORS or kind is Generator) and m.heap.origin_of(value) is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                made = value.__reduce_ex__(2)
            except TypeError:
                return False
        function = made[0]
        allowed = (function.__module__, getattr(function, "__name__", "")) in ALLOWED
        return allowed and is_plain(m, made[1:], depth + 1)
    return False


def dumps(m: Any, args: tuple, kwargs: dict) -> Any:
    if not args or not is_plain(m, args[0]):
        kind = type(args[0]).__qualname__ if args else "nothing"
        return m.stop(breaks.OPAQUE_CALL, f"pickle.dumps() of a {kind} that is not builtin data")
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
        prepare_native_reads.settle_all(m, value)
    held = [value.settle() if isinstance(value, Live) else value for value in args]
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
    except Exception:  # what loads() raises as well
        return True
    return True


def loads(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs or not is_plain_pickle(args[0]):
        return m.stop(breaks.OPAQUE_CALL, "pickle.loads() of more than builtin data")
    value = m.plainly(pickle.loads, *args)
    return m.made(value) if isinstance(value, value_kinds.CHANGEABLE) else value


HANDLERS: dict[Any, Any] = {pickle.dumps: dumps, pickle.loads: loads}
