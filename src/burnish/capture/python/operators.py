"""Operators, subscripts, truth and iteration while tracing.

Numbers and strings are computed at once. Tensors go to the recorder. Containers from outside are guarded as far as the
operation looks into them. Objects with Python special methods get those interpreted, through ``polyfills`` where
CPython's protocol has several steps.
"""

from __future__ import annotations

import collections
import enum
import operator
import types
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from .. import breaks
from ..engine.interpreted_or_native import is_trusted_type
from ..engine.object_kinds import UNEXPOSED
from ..guards.tensor_metadata import TENSOR_TYPES, is_tensor
from ..interpreter import frames as fr
from ..interpreter.frames import EXHAUSTED, MISSING, PUSHED, UNBOUND, Generator
from ..numbers import live_scalars, numpy_arrays, numpy_constants, numpy_kinds
from ..numbers.constant_tensors import is_constant
from ..numbers.live_scalars import Live
from ..pytorch import tensor_assertions
from . import builtin_polyfills, iterator_polyfills, subscripts
from .attribute_writes import discard
from .attributes import lookup, special_method
from .messages import print_and_format

SIMPLE = frozenset(
    (
        int,
        float,
        complex,
        bool,
        str,
        bytes,
        type(None),
        torch.dtype,
        torch.device,
        torch.Size,
        range,
        slice,
        type(Ellipsis),
        torch.layout,
        torch.memory_format,
    )
)
NUMPY = numpy_kinds.VALUES | {numpy_kinds.ARRAY}
NUMBERS_OF_PYTHON = frozenset((int, float, bool))
CONSTANT_KEYS = frozenset((str, int))
KEYED = frozenset((dict, set, frozenset, collections.Counter, collections.OrderedDict))
BUILTIN_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
CHANGEABLE = (list, dict, set, collections.deque)

# operation -> (method, reflected method, in-place method)
METHODS: dict[Callable, tuple[str, str | None, str | None]] = {}
for _name in (
    "add",
    "sub",
    "mul",
    "matmul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
):
    _plain = getattr(operator, _name + "_" if _name in ("and", "or") else _name)
    METHODS[_plain] = (f"__{_name}__", f"__r{_name}__", None)
    METHODS[getattr(operator, f"i{_name}")] = (f"__{_name}__", f"__r{_name}__", f"__i{_name}__")
for _name, _mirror in (("lt", "gt"), ("le", "ge"), ("eq", "eq"), ("ne", "ne"), ("gt", "lt"), ("ge", "le")):
    METHODS[getattr(operator, _name)] = (f"__{_name}__", f"__{_mirror}__", None)
METHODS[operator.getitem] = ("__getitem__", None, None)
UNARY_METHODS = {operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__"}
COMPARISONS = frozenset((operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge))
IN_PLACE = frozenset(
    getattr(operator, "i" + n)
    for n in (
        "add",
        "sub",
        "mul",
        "matmul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "lshift",
        "rshift",
        "and",
        "or",
        "xor",
    )
)


def stores_by_own_rules(m: Any, kind: type) -> bool:
    """Whether methods of C code call the user's ``__setitem__``: those of an ordered dictionary do."""
    return issubclass(kind, collections.OrderedDict) and isinstance(lookup(m, kind, "__setitem__")[0], FunctionType)


def binary(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    left_kind, right_kind = type(left), type(right)
    if left_kind in SIMPLE and right_kind in SIMPLE:
        return m.plainly(operation, left, right)
    if (
        left_kind in TENSOR_TYPES
        and (right_kind in TENSOR_TYPES or right_kind in NUMBERS_OF_PYTHON)
        and operation is not operator.getitem
    ):
        return m.perform(operation, left, right)
    if operation is operator.getitem:
        return subscripts.subscript(m, left, right)
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        if not isinstance(left, torch.Tensor) and python_method(m, left, METHODS[operation][0]):
            return by_protocol(m, operation, left, right)
        reflected = METHODS[operation][1]
        if reflected and not isinstance(right, torch.Tensor) and python_method(m, right, reflected):
            m.stop(
                breaks.OPAQUE_CALL,
                f"a tensor {operation.__name__} a {right_kind.__qualname__} with its own {reflected}",
            )
        expose(m, left)
        expose(m, right)
        return m.perform(operation, left, right)
    if left_kind in NUMPY or right_kind in NUMPY:
        return numpy_constants.apply(m, operation, left, right)
    if isinstance(left, Live) or isinstance(right, Live):
        if left_kind in (str, live_scalars.LiveStr) and operation is operator.mod:
            return (
                m.plainly(live_scalars.apply, operation, left, right)
                if type(right) in SIMPLE or isinstance(right, Live)
                else format_by_percent(m, settled(left), right)
            )
        if isinstance(left, live_scalars.NUMBERS) and isinstance(right, live_scalars.NUMBERS):
            # Not by the operands' own methods: those of bool and float know nothing of live numbers on their right.
            return m.plainly(live_scalars.apply, operation, left, right)
        if isinstance(left, str) and isinstance(right, str) and operation in (operator.add, operator.iadd):
            return live_scalars.apply(operator.add, left, right)
        names = METHODS[operation]
        if not any(python_method(m, left, n) for n in (names[0], names[2]) if n) and not (
            names[1] and python_method(m, right, names[1])
        ):
            return binary(m, operation, settled(left), settled(right))
    if operation in (operator.eq, operator.ne) and identity_decides(left_kind) and identity_decides(right_kind):
        return same(m, left, right) == (operation is operator.eq)
    names = METHODS[operation]
    if (
        any(python_method(m, left, n) for n in (names[0], names[2]) if n)
        or names[1]
        and python_method(m, right, names[1])
        or operation is operator.ne
        and (python_method(m, left, "__eq__") or python_method(m, right, "__eq__"))
    ):
        return by_protocol(m, operation, left, right)
    if isinstance(left, BUILTIN_CONTAINERS) or isinstance(right, BUILTIN_CONTAINERS):
        if left_kind is str and operation is operator.mod:
            return format_by_percent(m, left, right)
        if operation in (operator.or_, operator.ior) and (
            stores_by_own_rules(m, left_kind) or stores_by_own_rules(m, right_kind)
        ):
            m.stop(breaks.OPAQUE_CALL, f"{operation.__name__} of a dictionary with its own __setitem__")
        if operation in IN_PLACE:
            if m.region is not None and isinstance(left, CHANGEABLE):
                m.region.will_write(left)
            m.heap.will_write(left)
        expose(m, left)
        expose(m, right)
        if operation in COMPARISONS and not (holds_numbers_alone(left) and holds_numbers_alone(right)):
            settle_all(m, left)
            settle_all(m, right)
        if operation in COMPARISONS and (holds_user_equality(m, left) or holds_user_equality(m, right)):
            m.stop(breaks.USER_HASH, "containers compared whose elements define __eq__")
        if isinstance(right, (Generator, types.GeneratorType)):
            m.stop(breaks.OPAQUE_CALL, "a generator extends a list in place")
        return m.perform(operation, left, right)
    if is_known(left) and is_known(right):
        m.check_readable(operation, left)
        m.check_readable(operation, right)
        return m.plainly(operation, left, right)
    m.stop(
        breaks.OPAQUE_CALL, f"operator {operation.__name__} on {left_kind.__qualname__} and {right_kind.__qualname__}"
    )
    return None


def holds_numbers_alone(value: Any) -> bool:
    """Whether it is a shape, say: what is compared are its numbers, and live ones see that."""
    return isinstance(value, tuple) and all(type(part) in (int, live_scalars.LiveInt) for part in value)


def format_by_percent(m: Any, text: str, values: Any) -> Any:
    if print_and_format.needs_python_text(m, values):
        m.stop(breaks.OPAQUE_CALL, "% formatting of an object with its own text")
    settle_all(m, values)
    return m.perform(operator.mod, text, values)


def settled(value: Any) -> Any:
    return value.settle() if isinstance(value, Live) else value


def settle_all(m: Any, value: Any, depth: int = 0) -> None:
    """Native code is about to read live values in ``value``: guard them."""
    kind = type(value)
    if kind in UNEXPOSED:
        return
    if issubclass(kind, Live):
        value.settle()
    elif kind in numpy_kinds.NUMBERS:
        if m.heap.origin_of(value) is not None:
            m.stop(breaks.OPAQUE_CALL, f"a {kind.__qualname__} of NumPy's, which may be another one in the next call")
    elif depth > 20:
        return
    elif issubclass(kind, (tuple, list, set, frozenset, collections.deque)):
        for part in value:
            settle_all(m, part, depth + 1)
    elif issubclass(kind, dict):
        for k, v in value.items():
            settle_all(m, k, depth + 1)
            settle_all(m, v, depth + 1)
    elif kind is slice:
        settle_all(m, (value.start, value.stop, value.step))


def expose(m: Any, value: Any) -> None:
    if type(value) in SIMPLE:
        return
    if isinstance(value, BUILTIN_CONTAINERS):
        m.heap.expose(value)


def check_numbers(m: Any, values: Any) -> None:
    """Stop where native code would read a number of NumPy's that is not guarded."""
    for value in values:
        if type(value) in numpy_kinds.NUMBERS:
            settle_all(m, value)


NATIVE_PARTS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    property,
    types.MappingProxyType,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    types.GenericAlias,
    types.UnionType,
    Generator,
)


ENUM_VALUES = (int, float, complex, str, bytes, tuple)


def is_known_native(kind: type) -> bool:
    return kind in SIMPLE or issubclass(kind, NATIVE_PARTS) or is_trusted_type(kind)


def is_known(value: Any) -> bool:
    """Whether operators of C code see no more of a value than what is fixed: its type, or that it is this member."""
    return is_known_native(type(value)) or isinstance(value, enum.Enum) and isinstance(value, ENUM_VALUES)


def python_method(m: Any, obj: Any, name: str) -> bool:
    kind = type(obj)
    if kind in SIMPLE or issubclass(kind, Live) or is_tensor(obj):
        return False
    value, owner = lookup(m, kind, name)
    return isinstance(value, FunctionType) and owner is not None


def makes_by_python(m: Any, cls: type) -> bool:
    """Whether making an object of a class runs the user's code."""
    return any(
        isinstance(getattr(lookup(m, cls, n)[0], "__func__", lookup(m, cls, n)[0]), FunctionType)
        for n in ("__new__", "__init__")
    )


def holds_user_equality(m: Any, value: Any, depth: int = 0) -> bool:
    if isinstance(value, BUILTIN_CONTAINERS) and depth < 10:
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return any(holds_user_equality(m, p, depth + 1) for p in parts)
    return python_method(m, value, "__eq__")


def identity_decides(kind: type) -> bool:
    """Whether == on this type is object identity."""
    return kind.__eq__ is object.__eq__


def by_protocol(m: Any, operation: Callable, left: Any, right: Any) -> Any:
    method, reflected, in_place = METHODS[operation]
    if operation in COMPARISONS:
        return m.call(builtin_polyfills.compare, (left, right, method, reflected), {})
    if in_place is not None:
        return m.call(builtin_polyfills.in_place, (left, right, method, reflected, in_place), {})
    return m.call(builtin_polyfills.binary, (left, right, method, reflected), {})


def unary(m: Any, operation: Callable, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return m.perform(operation, value)
    if isinstance(value, Live):
        return m.plainly(operation, value)
    if type(value) in NUMPY:
        return numpy_constants.apply(m, operation, value)
    method = special_method(m, value, UNARY_METHODS[operation])
    if isinstance(method, types.MethodType):
        return m.call(method, (), {})
    return m.plainly(operation, value)


# ---- truth and identity


def truth_method(m: Any, value: Any) -> tuple[Any, bool] | None:
    """The Python method that decides an object's truth, and whether it is __len__."""
    kind = type(value)
    if kind in SIMPLE or kind in BUILTIN_CONTAINERS or isinstance(value, (torch.Tensor, Live)):
        return None
    for name in ("__bool__", "__len__"):
        found, _ = lookup(m, kind, name)
        if isinstance(found, FunctionType):
            return types.MethodType(found, value), name == "__len__"
        if found is not MISSING:
            return None
    return None


def truth(m: Any, value: Any) -> Any:
    kind = type(value)
    if kind in SIMPLE:
        return bool(value)
    if isinstance(value, torch.Tensor):
        if is_constant(m, value):
            return bool(value)
        found = tensor_assertions.settled(m, value)
        return m.perform(bool, value) if found is None else found
    if isinstance(value, Live):
        return truth_of_live(value)
    if kind in NUMPY:
        return numpy_constants.apply(m, bool, value)
    found = truth_method(m, value)
    if found is not None:
        answer = m.call(
            builtin_polyfills.truth_by_len if found[1] else builtin_polyfills.truth_by_bool, (found[0],), {}
        )
        if answer is PUSHED:
            m.frame.completion = fr.RETRY
        return answer
    origin = m.heap.origin_of(value)
    if origin is not None and isinstance(value, BUILTIN_CONTAINERS):
        if not origin.complete and not origin.is_written and not isinstance(value, tuple):
            m.heap.guard("truth", origin.source, bool(value))
        else:
            m.heap.complete(origin)
        return bool(value)
    if isinstance(value, BUILTIN_CONTAINERS) or is_known(value):
        return m.plainly(bool, value)
    if lookup(m, kind, "__bool__")[0] is MISSING and lookup(m, kind, "__len__")[0] is MISSING:
        return True
    m.stop(breaks.OPAQUE_CALL, f"truth of a {kind.__qualname__}")
    return None


def truth_of_live(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.settle())
    return bool(value)


def same(m: Any, left: Any, right: Any) -> bool:
    answer = left is right
    if type(left) in live_scalars.KINDS or type(right) in live_scalars.KINDS:
        return answer
    if isinstance(left, Live) or isinstance(right, Live):
        if answer or left is None or right is None:
            return answer
        left, right = settled(left), settled(right)
        return type(left) is type(right) and left == right
    a, b = m.heap.origin_of(left), m.heap.origin_of(right)
    if a is not None and b is not None and a is not b and not (a.source.is_pinned and b.source.is_pinned):
        m.heap.guard("unlike", a.source, b.source)
    return answer


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
        or (lookup(m, kind, "__contains__")[0] is MISSING and not isinstance(container, torch.Tensor))
    ):
        if kind is not Generator and all(
            lookup(m, kind, n)[0] is MISSING for n in ("__contains__", "__iter__", "__getitem__")
        ):
            return m.plainly(operator.contains, settled(container), item)  # which refuses
        return m.call(builtin_polyfills.not_contains if invert else builtin_polyfills.contains, (container, item), {})
    if isinstance(item, Live) and kind in KEYED | {list, tuple} and all(type(k) in SIMPLE for k in container):
        expose(m, container)  # what it holds is guarded, so only the number differs, and of it only the answer counts
        return live_scalars.apply(operator.contains, frozenset(container), item) != invert
    item = settled(item)
    settle_all(m, item)
    origin = m.heap.origin_of(container)
    if origin is not None and isinstance(container, (dict, types.MappingProxyType)) and m.heap.is_constant_key(item):
        if not origin.complete and item not in origin.known and item not in origin.written:
            origin_has = item in container
            m.heap.guard("has" if origin_has else "absent", origin.source, item)
        return (item in container) != invert
    if isinstance(container, torch.Tensor):
        return m.perform(lambda: (item in container) != invert)
    if isinstance(container, BUILTIN_CONTAINERS) or is_known_native(kind):
        m.check_readable(operator.contains, container)
        expose(m, container)
        settle_all(m, container)
        if isinstance(container, (dict, set, frozenset, type({}.keys()))):
            if type(item) is str and kind in (set, frozenset):
                return m.plainly(operator.contains, container, item) != invert
            if not isinstance(item, set) or isinstance(container, dict):  # a set is looked up as a frozenset
                check_key(m, item)
        elif holds_user_equality(m, container) or holds_user_equality(m, item):
            return m.call(
                builtin_polyfills.sequence_not_contains if invert else builtin_polyfills.sequence_contains,
                (container, item),
                {},
            )
        return m.perform(lambda: (item in container) != invert)
    m.stop(breaks.OPAQUE_CALL, f"`in` on a {kind.__qualname__}")
    return None


def check_key(m: Any, key: Any) -> None:
    """A key is about to be hashed by C code."""
    kind = type(key)
    if kind in SIMPLE:
        return
    if kind in numpy_kinds.NUMBERS:
        settle_all(m, key)
        return
    if kind.__hash__ is None:
        m.plainly(hash, key)
    elif isinstance(key, Live):
        key.settle()
    elif isinstance(key, tuple):
        for part in key:
            check_key(m, part)
    elif isinstance(key, torch.Tensor):
        m.heap.identity_matters.add(torch.Tensor)
    elif python_method(m, key, "__hash__") and not is_trusted_type(lookup(m, kind, "__hash__")[1]):
        m.stop(breaks.USER_HASH, f"a {kind.__qualname__} as key")
    else:
        m.heap.identity_matters.add(kind)


# ---- iteration

ITERATORS = frozenset(
    type(i)
    for i in (
        iter([]),
        iter(()),
        iter({}),
        iter({}.values()),
        iter({}.items()),
        iter(""),
        iter("é"),
        iter(range(0)),
        iter(set()),
        reversed([]),
        enumerate([]),
        zip(),
        iter(b""),
        iter(range(1 << 65)),
        reversed({}),
        reversed({}.values()),
        iter(collections.deque()),
        reversed(collections.deque()),
        reversed(range(0)),
        reversed(range(1 << 65)),
        reversed({}.items()),
        iter(memoryview(b"")),
        iter(bytearray()),
        iter(collections.OrderedDict()),
        reversed(()),
    )
)


def can_iterate(m: Any, value: Any) -> bool:
    """As Python sees it before it asks: None in a class says no, whatever else it has."""
    found = lookup(m, type(value), "__iter__")[0]
    return found is not None and (found is not MISSING or lookup(m, type(value), "__getitem__")[0] is not MISSING)


def iterate(m: Any, value: Any) -> Any:
    kind = type(value)
    if kind in ITERATORS or kind is Generator or kind.__module__ == "itertools":
        return value
    if isinstance(value, torch.Tensor):
        if m.open_sizes is not None:
            m.open_sizes.close_first(value)
        return m.perform(iter, value)
    if isinstance(value, Live):
        return iter(value.settle())
    if kind is numpy_kinds.ARRAY and numpy_arrays.is_known(m, value):
        return m.plainly(iter, [numpy_arrays.note(m, part) for part in value])
    found, owner = lookup(m, kind, "__iter__")
    if found is enum.EnumMeta.__iter__:
        return m.plainly(iter, [*value])  # its own iterator is a native generator
    if isinstance(found, FunctionType):
        method = types.MethodType(found, value)
        return (
            m.call(method, (), {}) if is_trusted_type(owner) else m.call(builtin_polyfills.iterator_of, (method,), {})
        )
    if found is MISSING or found is None:
        if found is MISSING and python_method(m, value, "__getitem__"):
            return m.call(iterator_polyfills.iterate_by_index, (value,), {})
        return m.plainly(iter, value)
    if isinstance(value, BUILTIN_CONTAINERS):
        m.heap.expose_items(value)
        return m.plainly(iter, value)
    if kind in SIMPLE or is_known_native(kind):
        if kind is types.MappingProxyType:
            m.heap.expose(value)
        m.check_readable(iter, value)
        return m.plainly(iter, value)
    if m.heap.is_outside_iterator(value) and hasattr(kind, "__next__"):
        return value
    m.stop(breaks.OPAQUE_CALL, f"iteration over a {kind.__qualname__}")
    return None


# Their elements are there already, or are numbers: the next one is had without any other code running.
PLAIN_ITERATORS = frozenset(map(type, (iter([]), iter(()), iter(range(0)), iter(range(1 << 70)), iter(""), iter("é"))))
KEYED_ITERATORS = frozenset(map(type, (iter({}), iter({}.values()), iter({}.items()))))  # these may refuse to go on


def advance(m: Any, iterator: Any) -> Any:
    """The next element, EXHAUSTED, or PUSHED where ``__next__`` is Python."""
    kind = type(iterator)
    found, _ = (MISSING, None) if kind in PLAIN_ITERATORS or kind in KEYED_ITERATORS else lookup(m, kind, "__next__")
    if isinstance(found, FunctionType):
        answer = m.call(types.MethodType(found, iterator), (), {})
        if answer is PUSHED:
            m.frame.completion = fr.FOR_ITER
        return answer
    if m.heap.is_outside_iterator(iterator):
        m.stop(breaks.OUTSIDE_ITERATOR, f"the next element of a {kind.__qualname__}")
    if kind in PLAIN_ITERATORS:
        return next(iterator, EXHAUSTED)
    if kind in KEYED_ITERATORS:
        return m.plainly(next, iterator, EXHAUSTED)
    if kind in ITERATORS or kind.__module__ == "itertools" or kind in (map, filter):
        return m.perform(next, iterator, EXHAUSTED)
    if found is MISSING:
        return m.plainly(next, iterator)
    m.stop(breaks.OUTSIDE_ITERATOR, f"the next element of a {kind.__qualname__}")
    return None


def unpack(m: Any, value: Any, count: int | None) -> Any:
    if type(value) is tuple:
        return value
    has_own = python_method(m, value, "__iter__")
    if isinstance(value, tuple) and not has_own:
        return tuple(tuple.__iter__(value))  # its length is not asked for, which a class may define
    if isinstance(value, (list, collections.deque, dict, set, str, range)) and not has_own:
        m.heap.expose_items(value)
        return list(value)
    if isinstance(value, torch.Tensor):
        if m.open_sizes is not None:
            m.open_sizes.close_first(value)
        return m.perform(lambda t: list(iter(t)), value)

    kind = type(value)
    if not can_iterate(m, value):
        if hasattr(kind, "__iter__"):
            return m.plainly(iter, value)
        raise fr.Raised(TypeError(f"cannot unpack non-iterable {kind.__name__} object"))
    answer = m.call(
        builtin_polyfills.take if count is not None else builtin_polyfills.to_list,
        (value, count + 1) if count is not None else (value,),
        {},
    )
    if answer is PUSHED:
        m.frame.completion = fr.RETRY
    return answer


def extend(m: Any, method: str, target: Any, other: Any) -> Any:
    if type(other) is dict and method == "dict_update" and type(target) is dict:
        m.heap.complete(m.heap.origin_of(other))  # what its values hold is read where somebody reads it
        m.heap.will_write(target)
        if not all([type(key) is str for key in other]):
            for key in other:
                check_key(m, key)
        target.update(other)
        return None
    if isinstance(other, (list, tuple, set, frozenset, collections.deque, str, range)) or (
        isinstance(other, dict) and not python_method(m, other, "__iter__")
    ):
        if method == "dict_update" and not isinstance(other, dict):
            m.plainly(target.update, other)
            return None
        expose(m, other)
        origin = m.heap.origin_of(target)
        if method == "list_extend":
            if origin is not None:
                m.heap.will_append(target, origin)
            target.extend(other)
            return None
        m.heap.will_write(target)
        for key in other:
            check_key(m, key)
        target.update(other)
        return None

    kind = type(other)
    if not can_iterate(m, other) and not (method == "dict_update" and lookup(m, kind, "keys")[0] is not MISSING):
        if method == "list_extend":
            if hasattr(kind, "__iter__"):
                return m.plainly(iter, other)
            raise fr.Raised(TypeError(f"Value after * must be an iterable, not {kind.__name__}"))
        return m.plainly(target.update, other)
    return discard(m, m.call(getattr(builtin_polyfills, method), (target, other), {}))


# ---- text


def format_value(m: Any, value: Any, convert: Callable | None, spec: str) -> Any:
    if isinstance(spec, Live):
        spec = spec.settle()
    if isinstance(value, Live):
        if convert is not None:
            value = m.plainly(live_scalars.apply, convert, value)
        return m.plainly(live_scalars.apply, format, value, spec)
    kind = type(value)
    if kind is torch.Size and not spec and any(isinstance(size, Live) for size in value):
        return size_text(value)
    if kind in SIMPLE:
        return m.plainly(format, value if convert is None else convert(value), spec)
    if convert is not None:
        return m.call(builtin_polyfills.convert_and_format, (convert, value, spec), {})
    for name in ("__format__", "__str__", "__repr__"):
        found, owner = lookup(m, kind, name)
        if isinstance(found, FunctionType):
            if name == "__format__":
                method = types.MethodType(found, value)
                return m.call(
                    builtin_polyfills.of_kind, (method, str, "__format__ must return a str, not {}", spec), {}
                )
            if spec:
                return m.plainly(object.__format__, value, spec)
            return print_and_format.text_of(m, str, value)
        if name == "__format__" and owner is not object:
            break
    if isinstance(value, torch.Tensor):
        return m.perform(format, value, spec)
    return m.plainly(format, value, spec) if spec else print_and_format.text_of(m, str, value)


def size_text(shape: torch.Size) -> Any:
    """The text of a shape with live numbers in it: messages show shapes, and mostly nobody reads them."""
    text: Any = "torch.Size(["
    for k, size in enumerate(shape):
        part = live_scalars.apply(str, size) if isinstance(size, Live) else str(size)
        for more in (", ", part) if k else (part,):
            text = (
                live_scalars.apply(operator.add, text, more)
                if isinstance(text, Live) or isinstance(more, Live)
                else text + more
            )
    return live_scalars.apply(operator.add, text, "])")


# ---- small functions that appear in expressions of live values


def join(*parts: str) -> str:
    return "".join(parts)


def is_nan(value: float) -> bool:
    return value != value


def same_value(value: Any, expected: Any) -> bool:
    return type(value) is type(expected) and repr(value) == repr(expected)


def is_unbound(cell: Any) -> bool:
    return fr.cell_value(cell) is UNBOUND


def mentions_tensor(args: Any, kwargs: Any) -> bool:
    return any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values()))
