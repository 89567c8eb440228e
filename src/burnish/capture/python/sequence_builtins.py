"""Builtins that iterate over their argument while tracing: ``len``, ``next``, ``sum``, ``sorted`` and so on.

For elements with operators in Python, Python versions of the builtins are interpreted (``polyfills``).
"""

from __future__ import annotations

import collections
import math
import types
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from .. import breaks
from ..engine.container_changes import refuse_view_of_methods
from ..engine.interpreted_or_native import OUR_PATH, is_trusted_type
from ..guards.container_reads_past_overrides import elements_of
from ..interpreter import frames as fr
from ..interpreter.frames import EXHAUSTED, MISSING, Generator, Raised
from ..interpreter.versions.behavior import BEHAVIOR
from ..numbers import live_scalars, min_max_of_tensors, numpy_tables
from ..numbers.live_scalars import Live
from ..numpy_calls import numpy_dispatch
from .attributes.class_lookup import lookup
from .attributes.descriptor_binding import special_method
from .calls import native_call_rules
from .operators import functions_called_by_guards, iteration, value_kinds
from .polyfills import iterator_polyfills, operator_protocol_polyfills, reduction_polyfills, sort_polyfills


def _len(m: Any, args: tuple, kwargs: dict) -> Any:
    (value,) = args
    if type(value) in COUNTED:
        origin = m.heap.origin_of(value)
        if origin is None or origin.complete:
            return m.plainly(len, value)
    if issubclass(type(value), torch.Tensor):
        answer = m.unbacked_sizes.asked("__len__", value, ())
        if answer is None and m.symbolic_sizes is not None:
            answer = m.symbolic_sizes.asked("__len__", value, ())
        return m.perform(len, value) if answer is None else answer
    if issubclass(type(value), Live):
        return m.plainly(len, value.settle())
    if type(value) is numpy_tables.ARRAY:
        return numpy_dispatch.length(m, value)
    refuse_view_of_methods(m.heap, value)
    method = special_method(m, value, "__len__")
    if isinstance(method, types.MethodType):
        return (
            m.call(method, (), {})
            if is_trusted_type(type(value))
            else m.call(operator_protocol_polyfills.length, (method,), {})
        )
    length = lookup(m, type(value), "__len__")[0]
    if length is MISSING or length is None:
        return m.plainly(len, value)
    m.check_readable(len, value)
    origin = m.heap.origin_of(value)
    if origin is not None and not origin.complete and not issubclass(type(value), tuple):
        if not origin.written and issubclass(type(value), (list, dict)):
            return m.heap.read_length(origin)
        m.heap.complete(origin)
        return len(value)
    if issubclass(type(value), value_kinds.BUILTIN_CONTAINERS) or value_kinds.is_known(value):
        return m.plainly(len, value)
    return m.stop(breaks.OPAQUE_CALL, f"len() of a {type(value).__qualname__}")


COUNTED = frozenset((tuple, list, dict, str, torch.Size))


def _next(m: Any, args: tuple, kwargs: dict) -> Any:
    iterator = args[0]
    if len(args) == 2:
        return (
            m.call(reduction_polyfills.next_or, args, {})
            if type(iterator) is Generator or value_kinds.python_method(m, iterator, "__next__")
            else _next_native(m, iterator, args[1])
        )
    if type(iterator) is Generator:
        m.take_over(iterator)
        return m.resume(iterator, None, fr.NEXT)
    if value_kinds.python_method(m, iterator, "__next__"):
        return m.call(special_method(m, iterator, "__next__"), (), {})
    return _next_native(m, iterator, MISSING)


def _next_native(m: Any, iterator: Any, default: Any) -> Any:
    value = iteration.advance(m, iterator)
    if value is EXHAUSTED:
        if default is not MISSING:
            return default
        raise Raised(StopIteration())
    return value


def _iter(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) == 2:
        if lookup(m, type(args[0]), "__call__")[0] is MISSING:
            return m.plainly(iter, *args)
        return m.call(iterator_polyfills.iterate_until, args, {})
    is_polyfill = m.frame is not None and m.frame.code.co.co_filename.startswith(OUR_PATH)
    return (iteration.iterate_in_loop if is_polyfill else iteration.iterate)(m, args[0])


def _sum(m: Any, args: tuple, kwargs: dict) -> Any:
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    if issubclass(type(start), (str, bytes, bytearray)):
        if args[0] is not NOTHING:
            return m.call(reduction_polyfills.sum_of_bytes, (args[0], NOTHING, start), {})
        return m.plainly(sum, NOTHING, start)  # which refuses
    items = elements_with_live_numbers(m, args[0])
    numbers = (start, *items) if are_numbers(items) and are_numbers((start,)) and len(args) + len(kwargs) <= 2 else ()
    live = [number for number in numbers if issubclass(type(number), Live)]
    is_plain = not BEHAVIOR.sum_corrects_floats or all(issubclass(type(number), int) for number in numbers)
    if live and not is_plain and len(numbers) <= live_scalars.DEEPEST_FORMULA:
        known = not any(number.expression.in_graph for number in live)
        if known and live_scalars.has_result(functions_called_by_guards.summed, *numbers):
            return live_scalars.apply(functions_called_by_guards.summed, *numbers)
    if wants_python(m, args[:1]) or holds_objects(items) or live and is_plain:
        polyfill = reduction_polyfills.sum_corrected if BEHAVIOR.sum_corrects_floats else reduction_polyfills.sum_
        return m.call(reduction_polyfills.sum_ if numbers else polyfill, (items, *args[1:]), kwargs)
    return native(m, sum, args, kwargs)


def _prod(m: Any, args: tuple, kwargs: dict) -> Any:
    """Interpreted where a number is live, such as a size. Otherwise C code multiplies."""
    if len(args) != 1 or not kwargs.keys() <= {"start"} or not are_numbers((*kwargs.values(),)):
        return MISSING
    items = elements_with_live_numbers(m, args[0])
    numbers = (*items, *kwargs.values()) if are_numbers(items) else ()
    if len(numbers) > live_scalars.DEEPEST_FORMULA or not any(issubclass(type(number), Live) for number in numbers):
        return MISSING
    return m.call(reduction_polyfills.prod, (items,), kwargs)


NOTHING = ()


def holds_live_numbers(items: Any) -> bool:
    """Whether a list or tuple consists of numbers, with live ones among them."""
    return are_numbers(items) and any(issubclass(type(value), Live) for value in items)


def elements_with_live_numbers(m: Any, items: Any) -> Any:
    return m.heap.items_read_at_once(items) if are_numbers(items) else items


def are_numbers(items: Any) -> bool:
    """Without those of a subclass, which may have operators in Python."""
    return type(items) in (list, tuple, torch.Size, collections.deque) and all(
        type(value) in value_kinds.NUMBERS for value in items
    )


def _quantifier(builtin: Callable, polyfill: FunctionType) -> Callable:
    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        if wants_python(m, args) or holds_objects(args[0]) or _is_not_seen_into(args[0]):
            return m.call(polyfill, args, kwargs)
        return native(m, builtin, args, kwargs)

    return handler


def _is_not_seen_into(items: Any) -> bool:
    """Whether it is an iterator or a view: its elements are not known, and may have rules of their own."""
    return not issubclass(type(items), (*value_kinds.BUILTIN_CONTAINERS, str, bytes, range, torch.Tensor, Live))


def _extreme(builtin: Callable, polyfill: FunctionType) -> Callable:
    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        chosen = min_max_of_tensors.choose(m, builtin, args, kwargs)
        if chosen is not MISSING:
            return chosen
        items = elements_with_live_numbers(m, args[0]) if len(args) == 1 and not kwargs else ()
        if holds_live_numbers(items) and len(items) > 1:
            args = tuple(items)
        if (
            len(args) > 1
            and not kwargs
            and all(type(a) in value_kinds.NUMBERS for a in args)
            and any(issubclass(type(a), Live) for a in args)
        ):
            return live_scalars.apply(builtin, *args)
        if (
            kwargs.get("key") is not None
            or wants_python(m, args[:1])
            or any(map(holds_objects, args))
            or len(args) == 1
            and _is_not_seen_into(args[0])
            or len(args) > 1
            and any(is_object(a) for a in args)
        ):
            return m.call(polyfill, args, kwargs)
        return native(m, builtin, args, kwargs)

    return handler


def _sorted(m: Any, args: tuple, kwargs: dict) -> Any:
    if kwargs.get("key") is not None or wants_python(m, args) or holds_objects(args[0]):
        return m.call(sort_polyfills.sorted_, args, kwargs)
    return native(m, sorted, args, kwargs)


def wants_python(m: Any, args: tuple) -> bool:
    for value in args:
        iteration.refuse_outside(m, value)
    return any(iteration.needs_interpreting(m, a) for a in args)


def holds_objects(value: Any) -> bool:
    """Whether a container holds tensors (with data that may be needed) or objects whose operators may be in Python."""
    return issubclass(type(value), value_kinds.BUILTIN_CONTAINERS) and any(map(is_object, elements_of(value)))


def is_object(value: Any) -> bool:
    if type(value) in value_kinds.SIMPLE or issubclass(type(value), Live):
        return False
    if issubclass(type(value), (tuple, list)):
        return any(map(is_object, elements_of(value)))
    return not issubclass(type(value), value_kinds.BUILTIN_CONTAINERS)


def native(m: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    args, kwargs = tuple(map(native_call_rules.plain, args)), {k: native_call_rules.plain(v) for k, v in kwargs.items()}
    return native_call_rules.native(m, function, args, kwargs)


BUILTINS: dict[Any, Callable] = {
    len: _len,
    next: _next,
    iter: _iter,
    sum: _sum,
    math.prod: _prod,
    any: _quantifier(any, reduction_polyfills.any_),
    all: _quantifier(all, reduction_polyfills.all_),
    min: _extreme(min, reduction_polyfills.minimum),
    max: _extreme(max, reduction_polyfills.maximum),
    sorted: _sorted,
}
