"""Membership while tracing: ``item in container``, with a guard on what the answer depends on."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import ItemsView
from typing import Any

import torch

from ... import breaks
from ...engine import container_changes
from ...interpreter.frames import MISSING, Generator
from ...numbers import live_scalars
from ...numbers.live_scalars import Live
from ..attributes.class_lookup import lookup
from ..polyfills import operator_protocol_polyfills
from .guard_before_native_read import check_key, expose, settle_all, settled
from .guard_identity_comparisons import guard_comparison, guard_elements
from .value_kinds import BUILTIN_CONTAINERS, SIMPLE, holds_user_equality, is_known_native, python_method

CONSTANT_KEYS = frozenset((str, int))
KEYED = frozenset((dict, set, frozenset, collections.Counter, collections.OrderedDict))


def contains(m: Any, container: Any, item: Any, invert: bool) -> Any:
    kind = type(container)
    if kind is dict and type(item) in CONSTANT_KEYS:
        origin = m.heap.origin_of(container)
        if origin is not None and not origin.complete and item not in origin.known and item not in origin.written:
            m.heap.guard("has" if item in container else "absent", origin.source, item)
        return (item in container) != invert
    if (
        python_method(m, container, "__contains__")
        or kind is Generator
        or (lookup(m, kind, "__contains__")[0] is MISSING and not issubclass(type(container), torch.Tensor))
    ):
        if kind is not Generator and all(
            lookup(m, kind, n)[0] is MISSING for n in ("__contains__", "__iter__", "__getitem__")
        ):
            return m.plainly(operator.contains, settled(container), item)  # which refuses
        return m.call(
            operator_protocol_polyfills.not_contains if invert else operator_protocol_polyfills.contains,
            (container, item),
            {},
        )
    if (
        issubclass(type(item), Live)
        and kind in KEYED | {list, tuple}
        and all(type(k) in SIMPLE and k == k for k in container)  # NaN is found by its identity alone
    ):
        expose(
            m, container, reads_order=False
        )  # what it holds is guarded, so only the number differs, and of it only the answer counts
        return live_scalars.apply(operator.contains, frozenset(container), item) != invert
    item = settled(item)
    settle_all(m, item, converts=issubclass(type(container), (bytes, bytearray)))  # which ask for a number
    container_changes.refuse_view_of_methods(m.heap, container)
    origin = m.heap.origin_of(container)
    if (
        origin is not None
        and issubclass(type(container), (dict, types.MappingProxyType))
        and m.heap.is_constant_key(item)
    ):
        if not origin.complete and item not in origin.known and item not in origin.written:
            origin_has = item in container
            m.heap.guard("has" if origin_has else "absent", origin.source, item)
        return (item in container) != invert
    if issubclass(type(container), torch.Tensor):
        return m.perform(lambda: (item in container) != invert)
    if issubclass(type(container), BUILTIN_CONTAINERS) or is_known_native(kind):
        m.check_readable(operator.contains, container)
        expose(m, container, reads_order=False)
        settle_all(m, container, converts=False)
        if issubclass(type(container), (dict, set, frozenset, type({}.keys()))):
            if type(item) is str and kind in (set, frozenset):
                return m.plainly(operator.contains, container, item) != invert
            if not issubclass(type(item), set) or issubclass(
                type(container), dict
            ):  # a set is looked up as a frozenset
                check_key(m, item, set if issubclass(type(container), (set, frozenset)) else dict)
        elif issubclass(type(container), ItemsView):
            return m.call(
                operator_protocol_polyfills.item_not_contains if invert else operator_protocol_polyfills.item_contains,
                (container, item),
                {},
            )
        elif holds_user_equality(m, container) or holds_user_equality(m, item):
            return m.call(
                operator_protocol_polyfills.sequence_not_contains
                if invert
                else operator_protocol_polyfills.sequence_contains,
                (container, item),
                {},
            )
        is_values = kind is type({}.values())
        guard_comparison(m, list(container) if is_values else container, item)
        if is_values or issubclass(kind, (list, tuple, collections.deque)):
            guard_elements(m, operator.contains, list(container) if is_values else container, item)
        return m.perform(lambda: (item in container) != invert)
    return m.stop(breaks.OPAQUE_CALL, f"`in` on a {kind.__qualname__}")
