"""Truth and identity while tracing: ``if x``, ``not x``, ``x is y``.

The truth of a container from outside is guarded, and so is that two objects from outside are not the same one.
"""

from __future__ import annotations

import types
from types import FunctionType
from typing import Any, NamedTuple

import torch

from ... import breaks
from ...interpreter import frames as fr
from ...interpreter.frames import MISSING, PUSHED
from ...numbers import live_scalars, min_max_of_tensors
from ...numbers.constant_tensors import is_constant
from ...numbers.live_scalars import Live
from ...numpy_calls import numpy_dispatch
from ...pytorch import tensor_assertions
from ..attributes.class_lookup import lookup
from ..polyfills import operator_protocol_polyfills
from .guard_before_native_read import settled
from .value_kinds import BUILTIN_CONTAINERS, NUMPY, SIMPLE, is_known


class TruthMethod(NamedTuple):
    """A method in Python that decides an object's truth, and what makes a truth of its answer."""

    method: Any
    polyfill: FunctionType


def truth_method(m: Any, value: Any) -> TruthMethod | None:
    kind = type(value)
    if kind in SIMPLE or kind in BUILTIN_CONTAINERS or issubclass(type(value), (torch.Tensor, Live)):
        return None
    if value is NotImplemented:
        return TruthMethod(
            operator_protocol_polyfills.truth_of_not_implemented, operator_protocol_polyfills.truth_by_bool
        )
    for name, polyfill in TRUTH_METHODS.items():
        found, _ = lookup(m, kind, name)
        if isinstance(found, FunctionType):
            return TruthMethod(types.MethodType(found, value), polyfill)
        if found is not MISSING:
            return None
    return None


TRUTH_METHODS = {
    "__bool__": operator_protocol_polyfills.truth_by_bool,
    "__len__": operator_protocol_polyfills.truth_by_len,
}


def truth(m: Any, value: Any) -> Any:
    kind = type(value)
    if kind in SIMPLE:
        return bool(value)
    if issubclass(type(value), torch.Tensor):
        if is_constant(m, value):
            return bool(value)
        found = tensor_assertions.settled(m, value)
        return m.perform(bool, value) if found is None else found
    if issubclass(type(value), Live):
        return truth_of_live(value)
    if kind in NUMPY:
        return numpy_dispatch.apply(m, bool, value)
    found = truth_method(m, value)
    if found is not None:
        answer = m.call(found.polyfill, (found.method,), {})
        if answer is PUSHED:
            m.frame.completion = fr.RETRY
        return answer
    origin = m.heap.origin_of(value)
    if origin is not None and issubclass(type(value), BUILTIN_CONTAINERS):
        if not origin.complete and not origin.is_written and not issubclass(type(value), tuple):
            m.heap.refuse_received(origin)
            m.heap.guard("truth", origin.source, bool(value))
        else:
            m.heap.complete(origin)
        return bool(value)
    if lookup(m, kind, "__bool__")[0] is MISSING and lookup(m, kind, "__len__")[0] is MISSING:
        return True
    if issubclass(type(value), BUILTIN_CONTAINERS) or is_known(value):
        m.heap.expose(value, reads_order=False)
        m.check_readable(bool, value)
        return m.plainly(bool, value)
    return m.stop(breaks.OPAQUE_CALL, f"truth of a {kind.__qualname__}")


def truth_of_live(value: Any) -> bool:
    if issubclass(type(value), str):
        return bool(value.settle())
    return bool(value)


FIRST_SHARED, LAST_SHARED = -5, 256  # Python has one object for each of these numbers


def same_number(left: Any, right: Any) -> bool:
    """``left is right`` where at least one is a live scalar."""
    live = [x for x in (left, right) if issubclass(type(x), Live)]
    if live_scalars.PLAIN.get(type(left), type(left)) is not live_scalars.PLAIN.get(type(right), type(right)):
        return False
    left, right = settled(left), settled(right)
    if type(left) is int and FIRST_SHARED <= left <= LAST_SHARED:
        return left == right
    if any(x.is_read for x in live):
        return False
    if len(live) == 1 or all(x.original is not None for x in live):
        return left is right
    return left == right


def is_same(m: Any, left: Any, right: Any) -> bool:
    answer = left is right or m.cached_answers is not None and m.cached_answers.same(left, right)
    if m.chosen and any(min_max_of_tensors.is_chosen(m, x) for x in (left, right) if isinstance(x, torch.Tensor)):
        m.stop(breaks.DATA_BRANCH, "which of its arguments min() or max() returns")
    if issubclass(type(left), Live) or issubclass(type(right), Live):
        return answer or same_number(left, right)
    if type(left) in live_scalars.KINDS or type(right) in live_scalars.KINDS:
        return answer
    a, b = m.heap.origin_of(left), m.heap.origin_of(right)
    if not answer and m.heap.originals:
        answer = m.heap.originals.get(id(left), left) is m.heap.originals.get(id(right), right)
        if answer and a is not None and b is not None:
            m.heap.guard("same", a.source, b.source)
            return True
    if a is not None and b is not None and a is not b and not (a.source.is_pinned and b.source.is_pinned):
        m.heap.guard("unlike", a.source, b.source)
    elif not answer and id(left) in m.heap.by_value and id(right) in m.heap.by_value:
        m.heap.guard("unlike", m.heap.by_value[id(left)][1], m.heap.by_value[id(right)][1])
    return answer
