"""Native calls: C code and leaves that run as one call, with arguments that are safe to read.

    pure(m, math.hypot, (3.0, width), {})        # width is a live scalar: made plain and guarded first

Cached functions and torch's Python leaves are called natively as well.
"""

from __future__ import annotations

import enum
import gc
import itertools
import operator
import types
from types import FunctionType, MethodType
from typing import Any

import torch

from ....foundation.torch_private import assert_true
from ... import breaks
from ...engine.interpreted_or_native import is_pure_module, is_user_type
from ...guards.container_reads_past_overrides import elements_of, items_of
from ...guards.guards import typed_key
from ...guards.value_or_identity import UNEXPOSED
from ...interpreter.emulated_frames import NAMED_AFTER_CALLERS
from ...interpreter.frames import MISSING
from ...numbers import constant_tensors
from ...numbers.live_scalars import Live, LiveInt
from ...pytorch import torch_switches
from ...segments.effects import Effect
from ...symbolic_sizes import guard_integer_arguments
from ..attributes.class_lookup import forget
from ..operators import guard_before_native_read, value_kinds
from . import reflection, torch_function_of_non_tensors


def call_leaf(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """A Python function of torch, or a pure one of the standard library, as one native call."""
    if function is assert_true and args and type(args[0]) is bool:
        # Of a bool it is Python's own statement: no call of the graph, and the message is never shown.
        return None if args[0] else m.plainly(function, *map(guard_before_native_read.settled, args))
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) not in UNEXPOSED:
            m.heap.expose(value)
    if is_pure_module(function.__globals__.get("__name__")):
        if function in NAMED_AFTER_CALLERS or "_caller" in function.__code__.co_names:
            m.stop(breaks.OPAQUE_FUNCTION, f"{function.__qualname__} is named after the module that calls it")
        return pure(m, function, args, kwargs)
    why = torch_switches.NOT_LEAVES.get(function)
    if why is not None:
        m.stop(breaks.GLOBAL_SWITCH, why)
    answer = torch_function_of_non_tensors.call(m, function, args, kwargs)
    if answer is not MISSING:
        return answer
    if m.symbolic_sizes is not None:
        guard_integer_arguments.check(m.symbolic_sizes, function.__name__, args, kwargs)
    # Its own arithmetic may put a float before a live int, which C code then takes for a plain one.
    if LiveInt in map(type, args):
        is_plain = (
            function.__module__ == "torch.nn.functional" or function.__name__ in guard_integer_arguments.PARAMETERS
        )
        takes_sizes = m.symbolic_sizes is not None and is_plain
        args = tuple(
            a.settle()
            if type(a) is LiveInt and not (takes_sizes and m.symbolic_sizes.takes(a, function.__name__))
            else a
            for a in args
        )
    args, kwargs = constant_tensors.with_numbers(m, function, function.__name__, args, kwargs)
    return m.perform(function, *args, **kwargs)


def call_cached(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A function behind ``functools.lru_cache``."""
    if any(issubclass(type(a), torch.Tensor) for a in (*args, *kwargs.values())):
        m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} behind lru_cache, called with tensors")
    if function.cache_info().maxsize == 0:
        m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} behind a lru_cache that keeps nothing")
    from . import cached_answers  # few programs call any

    made, cached = cached_answers.call(m, function, args, kwargs)
    if made is not MISSING:
        return made
    if m.region is not None and not getattr(m.region, "takes_effects", False):
        m.region.refuse(f"a call of {function.__qualname__}")  # the cache counts it
    for value in (*args, *kwargs.values()):
        guard_before_native_read.check_key(m, value)
    args, kwargs = plain(args), {k: plain(v) for k, v in kwargs.items()}  # the cache tells subclasses of int from int
    value = m.plainly(function, *args, **kwargs) if cached is MISSING else cached
    if not is_fixed(value):
        value = m.heap.admit(value, m.heap.sources.pin(value))  # what it holds may change
    m.effects.append(Effect.of(m, ask_cache, (function, args, kwargs)))
    source, entry = m.heap.sources.pin(function), entry_of(function, args, kwargs)
    if entry is None:
        # Until the cache is cleared, the result stays the one in it.
        m.heap.guard_answer(holds_at_least, source, function.cache_info().currsize)
    else:
        m.heap.guard_answer(holds_entry, source, entry)
    return value


class CacheEntry:
    """What a cached function holds for one call. Reports of guards do not print it: it may be large, and a user's
    ``__repr__`` would run."""

    def __init__(self, table: dict, key: Any, most: int | None):
        self.table, self.key, self.most = table, key, most
        self.held = table[key]
        """The result, or the link to it of a cache with a bound."""


def entry_of(function: Any, args: tuple, kwargs: dict) -> CacheEntry | None:
    """The entry for a call with plain arguments. None if the cache makes other keys."""
    values = (*args, *kwargs.values())
    if not all(type(each) in value_kinds.SIMPLE for each in values) or not hasattr(function, "cache_parameters"):
        return None
    kinds = tuple(map(type, values)) if function.cache_parameters()["typed"] else ()
    parts = gc.get_referents(function)
    marks = [(each,) for each in parts if type(each) is object] if kwargs else [()]  # between arguments and keywords
    table = [each for each in parts if type(each) is dict and each is not function.__dict__][-1]  # after all results
    for mark in marks:
        key: Any = (*args, *mark, *itertools.chain.from_iterable(kwargs.items()), *kinds)
        if len(key) == 1 and type(key[0]) in (int, str):
            key = key[0]
        if key in table:
            return CacheEntry(table, key, function.cache_info().maxsize)
    return None


def holds_entry(function: Any, entry: CacheEntry) -> bool:
    """Whether the cache still has the result of that call. That a full one does not says nothing: it made room for
    other entries, and was not cleared."""
    if function.cache_info().currsize == entry.most:
        return True
    found = entry.table.get(entry.key, MISSING)
    return found is entry.held or type(found) in value_kinds.SIMPLE and typed_key(found) == typed_key(entry.held)


def ask_cache(function: Any, args: tuple, kwargs: dict) -> None:
    """The cached function is asked again on every run: its counts, and a cache that lost the entry, are as in eager."""
    function(*args, **kwargs)


ask_cache.writes_nothing = True  # type: ignore[attr-defined]


def holds_at_least(function: Any, size: int) -> bool:
    return function.cache_info().currsize >= size


def is_fixed(value: Any) -> bool:
    if issubclass(type(value), tuple):
        return all(map(is_fixed, value))
    return type(value) in value_kinds.SIMPLE or isinstance(value, (type, FunctionType, types.ModuleType))


def native(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """Run C code whose arguments are made safe to read: guarded containers, settled numbers."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) not in UNEXPOSED:
            m.heap.expose(value)
            guard_before_native_read.settle_all(m, value)
            m.check_readable(function, value)
    return m.perform(function, *args, **kwargs)


def pure(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A function of its arguments alone. Its result must be a value that can be rebuilt or shared."""
    for value in (*args, *kwargs.values()):
        if value_kinds.is_read_by_steps(m, value):
            m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} reads the elements of a {type(value).__qualname__}")
        if type(value) is FunctionType:
            guard_before_native_read.settle_all(
                m, (value.__defaults__, value.__kwdefaults__)
            )  # which a signature shows
        if function.__module__ in CALL_BACK and holds_user_objects(value):
            m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} of objects with methods of their own")
        if (
            is_user_object(value)
            and not value_kinds.computes_by_value(m, value)
            and not is_pure_module(getattr(function, "__module__", None))
            or issubclass(type(value), (FunctionType, MethodType))
            and function.__module__ in ("re", "_functools")
            or function.__module__ in TAKES_HOOKS
            and reflection.is_of_user(value)
        ):
            m.stop(breaks.OPAQUE_CALL, f"{function.__qualname__} of a {type(value).__qualname__}")
    if type(function) is FunctionType:
        reflection.refuse_own_code(m, function, (*args, *kwargs.values()), kwargs)
    answer = native(m, function, plain(args), {k: plain(v) for k, v in kwargs.items()})
    if type(function) is FunctionType:
        reflection.guard_answer(m, function, args, kwargs, answer)
    if m.has_classes:
        for value in args:
            if id(value) in m.heap.fresh and issubclass(type(value), type):
                forget(m, value)  # `abc.update_abstractmethods` changes it
    return answer


CALL_BACK = frozenset((None, "builtins", "_operator", "operator", "json", "json.encoder", "string", "textwrap"))
"""Modules of functions that call methods of the objects in their arguments."""
TAKES_HOOKS = frozenset(("json", "json.encoder", "json.decoder"))
"""Modules of functions that call their arguments (``json.loads(text, object_hook=Config)``)."""


def holds_user_objects(value: Any, depth: int = 0) -> bool:
    if not issubclass(type(value), value_kinds.BUILTIN_CONTAINERS) or depth > 10:
        return depth > 0 and is_user_object(value) and not value_kinds.is_known(value)
    parts = itertools.chain.from_iterable(items_of(value)) if issubclass(type(value), dict) else elements_of(value)
    return any(holds_user_objects(part, depth + 1) for part in parts)


def is_user_object(value: Any) -> bool:
    kind = type(value)
    return is_user_type(kind) and not issubclass(kind, (type, torch.nn.Module, torch.Tensor, Live, enum.Enum))


def plain(value: Any) -> Any:
    if issubclass(type(value), Live):
        return value.settle()
    if type(value) is tuple:
        parts = tuple(plain(v) for v in value)
        return value if all(map(operator.is_, parts, value)) else parts  # the same, if the program asks
    return value
