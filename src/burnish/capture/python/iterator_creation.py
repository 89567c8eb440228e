"""Creation of builtin iterators while tracing: ``map``, ``zip``, ``enumerate`` and those of ``itertools``.

zip(batches(), labels)      # the user's code is among what it iterates over: a Python version steps through it
zip(names, sizes)           # C code that passes elements on without looking at them; the Python version for a loop in
                            # which numbers of a list differ from run to run
"""

from __future__ import annotations

import itertools
from types import FunctionType
from typing import Any

import torch

from .. import breaks
from ..interpreter.frames import MISSING
from ..interpreter.versions.behavior import BEHAVIOR
from ..numbers.live_scalars import plain_of, without_live
from .operators import guard_before_native_read, iteration, value_kinds
from .polyfills import iterator_polyfills, itertools_polyfills


def _polyfilled(polyfill: FunctionType, first: int, last: int | None = None, always: bool = False) -> Any:
    """``first`` and ``last``: the positions of the iterables among the arguments."""

    def handler(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
        given = (kwargs["iterable"],) if "iterable" in kwargs and not args else args[first:last]
        if not (
            always
            or cls.__module__ == "itertools"
            and not BEHAVIOR.iterators_of_itertools_are_copied
            or any(iteration.needs_interpreting(m, a) for a in given)
            or is_for_a_loop(m)
            and any(iteration.has_live(m, a) for a in given)
        ):
            return MISSING if not _is_safe(m, given) else _over_items(m, cls, args, kwargs)
        _check_arguments(m, cls, args, kwargs, first, last)
        return m.call(polyfill, args, kwargs)

    return handler


def is_for_a_loop(m: Any) -> bool:
    """Whether only a loop uses the result of the current call."""
    if m.frame is None:
        return False
    names, at = m.frame.code.opnames, m.frame.pc
    return names[at - 1] in ("CALL", "CALL_KW") and names[at] == "GET_ITER"


def _check_arguments(m: Any, cls: type, args: tuple, kwargs: dict, first: int, last: int | None) -> None:
    """Python checks the arguments when the iterator is made. Here empty iterables are used, so that nothing else
    happens."""
    args = (*args[:first], *((),) * len(args[first:last]), *(() if last is None else args[last:]))
    kwargs = {name: () if name == "iterable" else value for name, value in kwargs.items()}
    for value in (*args, *kwargs.values()):
        for name in ("__index__",) if any(value is arg for arg in args) else ("__index__", "__bool__", "__len__"):
            if value_kinds.python_method(m, value, name):
                m.stop(breaks.OPAQUE_CALL, f"{cls.__name__}() of an object with its own {name}")
    m.plainly(cls, *map(plain_of, args), **{name: plain_of(a) for name, a in kwargs.items()})


def _over_items(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """An iterator that passes on the elements of others without inspecting them."""
    for value in (*args, *kwargs.values()):
        m.heap.expose_items(value)
        guard_before_native_read.settled(value)
        m.check_readable(cls, value)
    args, kwargs = (
        tuple(map(guard_before_native_read.settled, args)),
        {k: guard_before_native_read.settled(v) for k, v in kwargs.items()},
    )
    return m.perform(cls, *args, **kwargs)


def _is_safe(m: Any, iterables: tuple) -> bool:
    for items in iterables:
        iteration.refuse_outside(m, items)
        if not (
            issubclass(type(items), (*value_kinds.BUILTIN_CONTAINERS, torch.Tensor))
            or value_kinds.is_known_native(type(items))
            or type(items) in iteration.ITERATORS
        ):
            m.stop(breaks.OPAQUE_CALL, f"iteration over a {type(items).__qualname__}")
    return True


CONSTRUCTORS: dict[type, Any] = {
    map: _polyfilled(iterator_polyfills.new_map, 1, always=True),
    filter: _polyfilled(iterator_polyfills.new_filter, 1, 2, always=True),
    zip: _polyfilled(iterator_polyfills.new_zip, 0),
    enumerate: _polyfilled(iterator_polyfills.new_enumerate, 0, 1),
}


def _add_itertools() -> None:
    for name, place, always in (
        ("accumulate", (0, 1), True),
        ("batched", (0, 1), False),
        ("chain", (0,), True),
        ("cycle", (0, 1), False),
        ("islice", (0, 1), True),
        ("pairwise", (0, 1), True),
        ("zip_longest", (0,), True),
        ("groupby", (0, 1), True),
        ("compress", (0, 2), True),
        *((n, (1, 2), True) for n in ("starmap", "takewhile", "dropwhile", "filterfalse")),
    ):
        if hasattr(itertools, name):
            polyfill = getattr(itertools_polyfills, f"new_{name}")
            CONSTRUCTORS[getattr(itertools, name)] = _polyfilled(polyfill, *place, always=always)
    for name in "count product permutations combinations combinations_with_replacement".split():
        CONSTRUCTORS[getattr(itertools, name)] = _itertool
    CONSTRUCTORS[itertools.repeat] = _repeat


def _repeat(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """It does not look at what it repeats."""
    if any(value_kinds.python_method(m, value, "__index__") for value in args[1:]) or kwargs:
        m.stop(breaks.OPAQUE_CALL, "repeat() of an object with its own __index__")
    return m.made(m.plainly(cls, *args[:1], *map(guard_before_native_read.settled, args[1:])))


def _itertool(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    if any(iteration.needs_interpreting(m, a) for a in args):
        if cls.__name__ == "count":
            return m.stop(breaks.OPAQUE_CALL, f"itertools.{cls.__name__} of a user object")
        lists = tuple(a if issubclass(type(a), (int, list, tuple)) else None for a in args)
        if None in lists:
            return m.call(itertools_polyfills.itertool_of_lists, (cls, args, kwargs), {})
    is_stepped = _is_stepped_through(cls, args, kwargs)
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
        if not (is_stepped and type(value) in (list, tuple)):  # whose elements are passed on unseen
            guard_before_native_read.settle_all(m, value)
        m.check_readable(cls, value)
    if not is_stepped:
        return m.made(m.perform(cls, *args, **kwargs))
    pools = tuple(tuple(value) if hasattr(type(value), "__iter__") else value for value in args)
    found = tuple(itertools.islice(m.perform(cls, *pools, **kwargs), MOST_COMBINED + 1))
    if len(found) > MOST_COMBINED:
        guard_before_native_read.settle_all(m, pools)
        return m.made(cls(*map(without_live, pools), **kwargs))
    return m.call(itertools_polyfills.COMBINED[cls], (iter(found), 0, pools, kwargs), {})


MOST_COMBINED = 1024


def _is_stepped_through(cls: type, args: tuple, kwargs: dict) -> bool:
    """Whether all results are computed at once. Python's own iterator is a break at each step once it has crossed one,
    and cannot cross it where Python does not copy it."""
    return (
        cls in itertools_polyfills.COMBINED
        and kwargs.keys() <= {"r", "repeat"}
        and not any(issubclass(type(value), torch.Tensor) for value in args)
    )


_add_itertools()
