"""Operator polyfills: Python versions of CPython's operator protocols, for operands with special methods in Python.

    a + b        # type(a).__add__(a, b), then type(b).__radd__(b, a), then the TypeError of C code

The error messages and the order of the calls are those of C code.
"""

from __future__ import annotations

import sys
import warnings
from array import array
from collections import deque
from operator import index

from ...interpreter.versions.behavior import BEHAVIOR

IS_ERROR = BEHAVIOR.truth_of_not_implemented_is_error

SYMBOLS = {
    "__add__": "+",
    "__sub__": "-",
    "__mul__": "*",
    "__matmul__": "@",
    "__truediv__": "/",
    "__floordiv__": "//",
    "__mod__": "%",
    "__pow__": "** or pow()",
    "__divmod__": "divmod()",
    "__lshift__": "<<",
    "__rshift__": ">>",
    "__and__": "&",
    "__or__": "|",
    "__xor__": "^",
    "__lt__": "<",
    "__le__": "<=",
    "__gt__": ">",
    "__ge__": ">=",
}
SEQUENCES = (str, bytes, list, tuple)
BASES = (list, tuple, deque)


def _binary_error(left, right, method, suffix):
    if method == "__mul__":
        for one, other in ((left, right), (right, left)):
            if issubclass(type(one), SEQUENCES):
                return TypeError(f"can't multiply sequence by non-int of type '{type(other).__name__}'")
    symbol = SYMBOLS[method]
    if suffix:
        symbol = symbol.split(" ")[0] + suffix
    return TypeError(f"unsupported operand type(s) for {symbol}: '{type(left).__name__}' and '{type(right).__name__}'")


def has_method(kind, name):
    """Not by ``hasattr``: a class has its metaclass's ``__or__``, its objects have not."""
    return any(name in base.__dict__ for base in kind.__mro__)


has_method._burnish_constant = True


def is_concatenation(kind, method):
    """Whether the ``+`` or ``*`` of a class is that of sequences, which Python asks last, after the other operand's."""
    if method not in ("__add__", "__mul__", "__rmul__", "__iadd__", "__imul__"):
        return False
    return next((base for base in kind.__mro__ if method in base.__dict__), None) in CONCATENATED


CONCATENATED = (str, bytes, bytearray, list, tuple, deque, array)
is_concatenation._burnish_constant = True


def binary(left, right, method, reflected):
    value = _try_binary(left, right, method, reflected)
    if value is NotImplemented:
        raise _binary_error(left, right, method, "")
    return value


def _try_binary(left, right, method, reflected):
    left_kind, right_kind = type(left), type(right)
    mine = getattr(left_kind, method, None) if has_method(left_kind, method) else None
    theirs = (
        getattr(right_kind, reflected, None)
        if left_kind is not right_kind and has_method(right_kind, reflected)
        else None
    )
    if theirs is not None and issubclass(right_kind, left_kind) and theirs is not getattr(left_kind, reflected, None):
        value = theirs(right, left)
        if value is not NotImplemented:
            return value
        theirs = None
    if theirs is not None and is_concatenation(left_kind, method):
        value = theirs(right, left)
        if value is not NotImplemented:
            return value
        theirs = None
    if mine is not None:
        value = mine(left, right)
        if value is not NotImplemented:
            return value
    if theirs is not None and not is_concatenation(right_kind, reflected):
        return theirs(right, left)
    return NotImplemented


def in_place(left, right, method, reflected, in_place_method):
    kind = type(left)
    is_last = is_concatenation(kind, in_place_method)
    if is_last and has_method(type(right), reflected):
        value = getattr(type(right), reflected)(right, left)
        if value is not NotImplemented:
            return value
    if has_method(kind, in_place_method):
        own = getattr(kind, in_place_method)
        value = own(left, right)
        if value is not NotImplemented:
            return value
    value = _try_binary(left, right, method, reflected)
    if value is NotImplemented:
        raise _binary_error(left, right, method, "=")
    return value


def compare(left, right, method, reflected):
    left_kind, right_kind = type(left), type(right)
    tried = False
    if left_kind is not right_kind and issubclass(right_kind, left_kind):
        tried = True
        value = getattr(right_kind, reflected)(right, left)
        if value is not NotImplemented:
            return value
    value = getattr(left_kind, method)(left, right)
    if value is not NotImplemented:
        return value
    if not tried:
        value = getattr(right_kind, reflected)(right, left)
        if value is not NotImplemented:
            return value
    if method == "__eq__":
        return left is right
    if method == "__ne__":
        return left is not right
    raise TypeError(
        f"'{SYMBOLS[method]}' not supported between instances of '{left_kind.__name__}' and '{right_kind.__name__}'"
    )


def not_equal(left, right):
    """``object.__ne__``."""
    value = type(left).__eq__(left, right)
    return value if value is NotImplemented else not value


COMPARE = {
    "__eq__": lambda left, right: left == right,
    "__ne__": lambda left, right: left != right,
    "__lt__": lambda left, right: left < right,
    "__le__": lambda left, right: left <= right,
    "__gt__": lambda left, right: left > right,
    "__ge__": lambda left, right: left >= right,
}


def compare_sequences(left, right, method):
    """Compare lists or tuples, which the comparison of their elements may change."""
    if issubclass(type(left), list) and method in ("__eq__", "__ne__") and len(left) != len(right):
        return method == "__ne__"
    at = 0
    while at < len(left) and at < len(right):
        one, other = left[at], right[at]
        if one is not other and not one == other:  # noqa: SIM201
            break
        at += 1
    if at >= len(left) or at >= len(right):
        return COMPARE[method](len(left), len(right))
    if method in ("__eq__", "__ne__"):
        return method == "__ne__"
    return COMPARE[method](left[at], right[at])


NOTHING = object()


def equal_dicts(left, right):
    if len(left) != len(right):
        return False
    items, at = list(left.items()), 0
    while at < len(items):
        key, value = items[at]
        other = right.get(key, NOTHING)
        if other is NOTHING or value is not other and not value == other:  # noqa: SIM201
            return False
        if len(left) != len(items):
            items = list(left.items())  # the comparison has changed it
        at += 1
    return True


def unequal_dicts(left, right):
    return not equal_dicts(left, right)


def truth_by_bool(method):
    value = method()
    if value is not True and value is not False:
        raise TypeError(f"__bool__ should return bool, returned {type(value).__name__}")
    return value


def truth_of_not_implemented():
    if IS_ERROR:
        raise TypeError("NotImplemented should not be used in a boolean context")
    warnings.warn("NotImplemented should not be used in a boolean context", DeprecationWarning)  # noqa: B028
    return True


def truth_by_len(method):
    return length(method) != 0


def untruth_by_bool(method):
    return not truth_by_bool(method)


def untruth_by_len(method):
    return not truth_by_len(method)


UNTRUTH = {truth_by_bool: untruth_by_bool, truth_by_len: untruth_by_len}


def length(method):
    value = method()
    if type(value) is not int:
        value = int(index(value))
    if value < 0:
        raise ValueError("__len__() should return >= 0")
    if value > sys.maxsize:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return value


def of_kind(method, kinds, refusal, *args):
    """The result of a special method; like C code, it raises if the result has another type."""
    value = method(*args)
    if not issubclass(type(value), kinds):
        raise TypeError(refusal.format(type(value).__name__))
    return value


def number_of(method, kind, name):
    """The number that ``int()``, ``float()`` and ``complex()`` make of a special method's result."""
    value = method()
    if type(value) is kind:
        return value
    text = f"{name} returned non-{kind.__name__} (type {name_in_c(type(value))})"
    if not isinstance(value, kind):
        raise TypeError(text)
    text += (
        f".  The ability to return an instance of a strict subclass of {kind.__name__} is deprecated, and may be "
        "removed in a future version of Python."
    )
    warnings.warn(text, DeprecationWarning)  # noqa: B028  # our frames are not counted
    return plain_number(kind, value)


def name_in_c(kind):
    """With the module, if the class is not written in Python."""
    is_python = kind.__module__ == "builtins" or not kind.__flags__ & IMMUTABLE
    return kind.__name__ if is_python else f"{kind.__module__}.{kind.__name__}"


name_in_c._burnish_constant = True
IMMUTABLE = 1 << 8


def plain_number(kind, value):
    return kind.__pos__(value)


plain_number._burnish_constant = True


def hash_of(method):
    value = method()
    if not issubclass(type(value), int):
        raise TypeError("__hash__ method should return an integer")
    if -1 << 63 <= value < 1 << 63:
        return -2 if value == -1 else int(value)
    return hash(value)


def iterator_of(method):
    value = method()
    if getattr(type(value), "__next__", None) is None:
        raise TypeError(f"iter() returned non-iterator of type '{type(value).__name__}'")
    return value


def contains(container, item):
    method = getattr(type(container), "__contains__", None)
    if method is not None:
        return bool(method(container, item))
    for value in container:  # noqa: SIM110  # any() would make a generator for each call
        if value is item or value == item:
            return True
    return False


def not_contains(container, item):
    return not contains(container, item)


def sequence_contains(container, item):
    items = container
    for base in BASES:
        if issubclass(type(container), base):
            items = base.__iter__(container)  # C code asks no subclass
    for value in items:  # noqa: SIM110
        if value is item or value == item:
            return True
    return False


def item_contains(view, item):
    """``item in table.items()``."""
    if not issubclass(type(item), tuple) or len(item) != 2:
        return False
    key, value = item
    found = view.mapping.get(key, NOTHING)
    return found is not NOTHING and (found is value or bool(found == value))


def item_not_contains(view, item):
    return not item_contains(view, item)


def sequence_not_contains(container, item):
    return not sequence_contains(container, item)
