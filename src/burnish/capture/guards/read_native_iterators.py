"""Contents of native iterators: what an iterator over a builtin container will return, read without advancing it.

    rest_of(iter([a, b, c]))          [a, b, c]; after one `next`: [b, c]
    parts_of(enumerate(iterator, 1))  (iterator, 1)

Both are read through ``__reduce__``. Sources of these kinds do not depend on the position of the iterator: the next
element is element 0. So one segment serves all iterations of a loop that are alike.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import gc
import itertools
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

from ...concurrency.outside_errors import reraise_from_outside
from ..interpreter.versions.behavior import BEHAVIOR

MOST = 128
"""The most elements that are read ahead. If there are more, a segment takes one: a long loop is not unrolled."""

BY_INDEX = frozenset(
    map(type, (iter([]), iter(()), iter(range(0)), iter(range(1 << 70)), iter(""), iter("é"), iter(b"")))
)
BACKWARDS = frozenset((type(reversed([])), reversed))
OF_TABLES = frozenset(
    map(
        type,
        (*(step(view({})) for view in (dict.keys, dict.values, dict.items) for step in (iter, reversed)), iter(set())),
    )
)
PAIRS = frozenset(map(type, (iter({}.items()), reversed({}.items()))))
ORDERED = type(iter(collections.OrderedDict()))
"""One class for keys, values and items, in both directions."""
VIEWS = frozenset(
    type(getattr(table(), name)()) for table in (dict, collections.OrderedDict) for name in ("keys", "values", "items")
)
"""Of dictionaries. A view is read through its dictionary, which is its "container"."""
ENDLESS = frozenset((itertools.count, itertools.repeat))
LEAVES = BY_INDEX | BACKWARDS | OF_TABLES | {ORDERED} | ENDLESS
COMPOSITES = frozenset((enumerate, zip))
READABLE = LEAVES | COMPOSITES
SLICED = frozenset((list, tuple, range, str, bytes))


def reduced(iterator: Any) -> tuple:
    """``iterator.__reduce__()``. Raises an error if the container has changed in a way that the iterator refuses, or if
    it cannot be copied: a count that has reached ``sys.maxsize`` raises a SystemError."""
    if not BEHAVIOR.iterators_of_itertools_are_copied and type(iterator) in ENDLESS:
        return type(iterator), _given(iterator)
    try:
        return without_warning(iterator, iterator.__reduce__)
    except SystemError as error:
        raise TypeError(f"cannot pickle '{type(iterator).__name__}' object") from error


def _given(iterator: Any) -> tuple:
    """What makes an iterator like this one, where it does not show that: read from what it refers to, and its text."""
    kind = type(iterator)
    held = gc.get_referents(iterator)
    del held[next(i for i, one in enumerate(held) if one is kind)]
    if kind is itertools.repeat:
        left = operator.length_hint(iterator, -1)
        return (held[0],) if left < 0 else (held[0], left)
    if not all(type(number) is int or type(number) is float and math.isfinite(number) for number in held):
        raise TypeError
    return tuple(ast.literal_eval(f"[{repr(iterator)[len('count(') : -1]}]"))


def without_warning(iterator: Any, function: Callable, *args: Any) -> Any:
    """Call a function of the iterator that makes or takes a copy. ``warnings.catch_warnings`` does not help: a program
    would be shown again the warnings that it has been shown once. A filter for this module alone shows nothing."""
    if not BEHAVIOR.copies_of_itertools_warn or type(iterator).__module__ != "itertools":
        return function(*args)
    filters = warnings.filters
    filters.insert(0, OF_COPIES)  # type: ignore[attr-defined]
    try:
        return function(*args)
    finally:
        with contextlib.suppress(ValueError):  # another thread has reset them
            filters.remove(OF_COPIES)  # type: ignore[attr-defined]


OF_COPIES = ("ignore", None, DeprecationWarning, __name__, 0)


def container_of(iterator: Any) -> Any:
    """The list, dictionary or set that an iterator or a view reads."""
    return table_of(iterator) if reads_table(type(iterator)) else iterator.__reduce__()[1][0]


def reads_table(kind: type) -> bool:
    return kind in OF_TABLES or kind is ORDERED or kind in VIEWS


def parts_of(iterator: Any) -> tuple:
    """What ``enumerate`` or ``zip`` was made of; its iterators are the ones it advances."""
    return iterator.__reduce__()[1]


def rest_of(iterator: Any) -> Any:
    """The next elements, at most ``MOST``; None if they cannot be read."""
    kind = type(iterator)
    if kind is ORDERED and not has_plain_keys(table_of(iterator)):
        return None
    try:
        _, given, *state = reduced(iterator)
    except (RuntimeError, TypeError, KeyError) as error:  # a dictionary of another size, or with other keys
        reraise_from_outside(error)
        return None
    if kind is itertools.count:
        return _numbers(*given)
    if kind is itertools.repeat:
        return (given[0],) * min(given[1] if len(given) > 1 else MOST, MOST)
    if not given:
        return ()
    (items,) = given
    if reads_table(kind):
        return items if len(items) < MOST else None
    if type(items) not in SLICED:
        return None
    at = state[0] if state and state[0] is not None else 0
    if kind in BACKWARDS:
        return items[at : at - MOST if at >= MOST else None : -1] if at >= 0 else ()
    return items[at : at + MOST]


def _numbers(start: Any, step: Any = 1) -> Any:
    return range(start, start + step * MOST, step) if type(start) is type(step) is int and step else None


def has_plain_keys(table: Any) -> bool:
    """Whether an iterator over an ordered dictionary, which looks each key up, runs no ``__hash__`` of the user's."""
    return table is None or dict.__len__(table) < MOST and all(type(key) in PLAIN_KEYS for key in dict.keys(table))


PLAIN_KEYS = frozenset((str, int, bool, float, bytes, type(None), type))


def table_of(iterator: Any) -> Any:
    """The dictionary or set behind an iterator or a view; None when the iterator is exhausted."""
    return next((r for r in gc.get_referents(iterator) if issubclass(type(r), (dict, set, frozenset))), None)


READERS: dict[str, Callable[[Any], Any]] = {"rest": rest_of, "parts": parts_of, "container": container_of}
"""By kind of source."""
