"""Guards the parts of an object from outside the first time the trace meets it."""

from __future__ import annotations

import copy
import functools
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..guards.immutable_builtin_subclasses import base_of_value, has_value, value_of
from ..guards.object_sources import Source
from ..guards.set_iteration_order import remembered
from ..guards.value_or_identity import METHOD_WRAPPER
from ..interpreter.reads_past_overrides import dict_of
from . import object_lifetimes
from .interpreted_or_native import hashes_in_python, is_trusted_namespace, is_trusted_type, is_user_type

if TYPE_CHECKING:
    from .heap import Heap


def guard_kind(heap: Heap, value: Any) -> None:
    """That a fixed object keeps its class: ``__class__`` may be assigned to objects of the user's classes, to classes
    and to modules."""
    kind = type(value)
    if issubclass(kind, type):
        is_fixed = is_trusted_type(value)
    elif issubclass(kind, types.ModuleType):
        is_fixed = is_trusted_namespace(dict_of(value))
    else:
        is_fixed = not is_user_type(kind)
    if not is_fixed and id(value) not in heap.fresh:
        heap.guard("type", heap.sources.pin(value), kind)


def admit_entries(heap: Heap, value: tuple, source: Source) -> None:
    kind = type(value)
    is_plain = kind.__len__ is tuple.__len__ and kind.__getitem__ is tuple.__getitem__
    heap.guard("length" if is_plain else "length by base", source, tuple.__len__(value))
    for i, part in enumerate(tuple.__iter__(value)):
        heap.admit(part, source.item(i) if is_plain else source.child("entry", i))


def guard_elements(heap: Heap, value: frozenset, source: Source) -> None:
    """By value, unless that would call methods of the user's that may have effects: a data class makes its own."""
    by_user = any(hashes_in_python(part) and not hasattr(type(part), "__dataclass_fields__") for part in value)
    if by_user or is_nested_deeply(value):
        heap.guard("is", source, value)
    else:
        heap.guard("equal set", source, remembered(value))


def is_nested_deeply(value: Any) -> bool:
    """Whether C code may have no room to compare such sets and tuples."""
    held = [value]
    for _ in range(DEEPEST_COMPARED):
        held = [part for each in held for part in each if issubclass(type(part), (tuple, frozenset))][:DEEPEST_COMPARED]
        if not held:
            return False
    return True


DEEPEST_COMPARED = 64


def guard_code(heap: Heap, value: types.FunctionType, source: Source) -> None:
    """A function that the code around it makes on every call: its code identifies it, its cells are read later."""
    if not source.is_pinned:
        heap.guard("is", source.attr("__code__"), value.__code__)
        heap.guard("is", source.attr("__globals__"), value.__globals__)


def admit_builtin_method(heap: Heap, value: Any, source: Source) -> None:
    heap.guard("equal", source.attr("__name__"), value.__name__)
    heap.admit(value.__self__, source.attr("__self__"))


def admit_method(heap: Heap, value: types.MethodType, source: Source) -> None:
    heap.admit(value.__func__, source.attr("__func__"))
    heap.admit(value.__self__, source.attr("__self__"))


def admit_partial(heap: Heap, value: functools.partial, source: Source) -> None:
    heap.admit(value.func, source.attr("func"))
    heap.admit(value.args, source.attr("args"))
    heap.complete(heap.origin_of(heap.admit(value.keywords, source.attr("keywords"))))


def guard_reduction(heap: Heap, value: Any, source: Source) -> None:
    """An immutable object: by what would make it again."""
    _, args = value.__reduce__()
    if all(type(arg) in (str, int) for arg in args):
        heap.guard_answer(is_made_of, source, args)
    else:
        heap.guard("is", source, value)


def ends_unseen_in_each_call(heap: Heap, value: Any) -> bool:
    """``object_lifetimes.ends_unseen`` for a segment, which later meets other objects in the same place. One from
    outside may hold others then: it stays, and a later break, which looks at the object itself, may drop it. The caller
    holds the arguments until the call ends."""
    origin = heap.origin_of(value)
    if origin is not None and is_argument(heap, origin.source):
        return object_lifetimes.end_of(type(value)) != object_lifetimes.HAS_EFFECT
    if not object_lifetimes.ends_unseen(value):
        return False
    waiting, seen = [value], set()
    while waiting:
        held = waiting.pop()
        end, origin = object_lifetimes.end_of(type(held)), heap.origin_of(held)
        if end == object_lifetimes.IS_PLAIN or id(held) in seen:
            continue
        seen.add(id(held))
        if origin is None:
            waiting += () if end == object_lifetimes.IS_LEAF else object_lifetimes.parts_of(held) or ()
        elif held is value and not origin.source.is_pinned:
            return False
        elif origin.source.kind == "slot" and not is_argument(heap, origin.source):
            if end != object_lifetimes.IS_LEAF:
                return False  # a guard would look into it in each call
            heap.guard_answer(object_lifetimes.ends_unseen, origin.source)
    return True


def is_argument(heap: Heap, source: Source) -> bool:
    return source.kind == "slot" and source.key[0] < heap.arguments


def is_made_of(value: Any, args: tuple) -> bool:
    return value.__reduce__()[1] == args


def guard_value(heap: Heap, value: Any, source: Source) -> None:
    heap.guard_answer(has_value, source, value_of(value))


def guard_placements(heap: Heap, value: Any, source: Source) -> None:
    from ...captured_graph.distributed_tensor_nodes import is_placed

    spec, local = copy.copy(value._spec), value._local_tensor  # an operator in place may change them
    heap.guard_answer(is_placed, source, spec, spec.mesh, tuple(local.shape), local.stride())


def parts_of(kind: type) -> Callable[[Any, Any, Source], None] | None:
    """How the parts of objects of this class are admitted."""
    if issubclass(kind, tuple):
        return admit_entries
    if kind.__name__ == "DTensor":
        from ...captured_graph.distributed_tensor_nodes import is_distributed_kind  # few programs have any

        if is_distributed_kind(kind):
            return guard_placements
    return PARTS.get(kind) or (None if base_of_value(kind) is None else guard_value)


PARTS: dict[type, Callable[[Any, Any, Source], None]] = {
    frozenset: guard_elements,
    types.FunctionType: guard_code,
    types.BuiltinFunctionType: admit_builtin_method,
    METHOD_WRAPPER: admit_builtin_method,
    types.MethodType: admit_method,
    functools.partial: admit_partial,
    operator.itemgetter: guard_reduction,
    operator.attrgetter: guard_reduction,
    operator.methodcaller: guard_reduction,
}
"""By exact type."""
