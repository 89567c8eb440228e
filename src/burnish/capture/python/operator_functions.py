"""The functions of the module ``operator`` while tracing: the same as their operators.

operator.add(a, b)        # a + b, with the methods of the user's classes
"""

from __future__ import annotations

import decimal
import functools
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ..interpreter.frames import MISSING
from ..numbers.live_scalars import Live
from .operators import binary_operators, iteration, subscripts, truth_and_identity, value_kinds
from .polyfills import container_polyfills, operator_protocol_polyfills


def _operator(operation: Callable, m: Any, args: tuple, kwargs: dict) -> Any:
    if operation is operator.contains:
        return m.contains(*args, False)
    if operation in (operator.is_, operator.is_not):
        return m.same(*args) == (operation is operator.is_)
    return m.binary(operation, *args)


def _unary_operator(operation: Callable, m: Any, args: tuple, kwargs: dict) -> Any:
    if operation in binary_operators.UNARY_METHODS:
        return m.unary(operation, *args)
    found = truth_and_identity.truth_method(m, args[0])
    if found is not None:
        polyfill = (
            found.polyfill if operation is operator.truth else operator_protocol_polyfills.UNTRUTH[found.polyfill]
        )
        return m.call(polyfill, (found.method,), {})
    answer = m.truth(args[0])
    return answer if operation is operator.truth else not answer


def _length_hint(m: Any, args: tuple, kwargs: dict) -> Any:
    is_native = args and type(args[0]) in iteration.ITERATORS and not m.heap.is_outside_iterator(args[0])
    return m.plainly(operator.length_hint, *args, **kwargs) if is_native else MISSING


def _index(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) == 1 and issubclass(type(args[0]), int) and not issubclass(type(args[0]), Live):
        return m.plainly(int.__index__, args[0])  # a subclass is not asked
    if len(args) != 1 or kwargs or not subscripts.indexes_in_python(m, args[0]) or type(args[0]) is slice:
        return MISSING
    return m.call(container_polyfills.index_of_part, args, {})


def _power(m: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if len(args) != 2 or kwargs or _mixes(args) else m.binary(operator.pow, *args)


def _divmod(m: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if len(args) != 2 or kwargs or _mixes(args) else m.binary(divmod, *args)


def _mixes(args: tuple) -> bool:
    """Whether one is a NumPy value or a decimal number and the other is neither that nor a plain number."""
    kinds = set(map(type, args))
    own = {kind for kind in kinds if kind in value_kinds.NUMPY or kind is decimal.Decimal}
    return bool(own) and not all(issubclass(kind, (int, float, complex, Live)) for kind in kinds - own)


def _of_index(function: Callable, m: Any, args: tuple, kwargs: dict) -> Any:
    """``hex(key)`` of an object with its own ``__index__``."""
    if len(args) != 1 or kwargs or not subscripts.indexes_in_python(m, args[0]) or type(args[0]) is slice:
        return MISSING
    return m.call(container_polyfills.of_index, (function, *args), {})


def _search(polyfill: FunctionType, m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 2 or kwargs or not iteration.can_iterate(m, args[0]):
        return MISSING  # which refuses
    return m.call(polyfill, args, {})


BINARY = (*binary_operators.METHODS, operator.contains, operator.is_, operator.is_not)
UNARY = (*binary_operators.UNARY_METHODS, operator.truth, operator.not_)
BUILTINS: dict[Any, Callable] = {
    **{operation: functools.partial(_operator, operation) for operation in BINARY},
    **{operation: functools.partial(_unary_operator, operation) for operation in UNARY},
    operator.inv: functools.partial(_unary_operator, operator.invert),
    operator.index: _index,
    pow: _power,
    divmod: _divmod,
    **{function: functools.partial(_of_index, function) for function in (bin, chr, hex, oct)},
    operator.length_hint: _length_hint,
    operator.countOf: functools.partial(_search, container_polyfills.count_in),
    operator.indexOf: functools.partial(_search, container_polyfills.index_in),
}
TAKE: dict[Any, tuple[int, int]] = {**dict.fromkeys(BINARY, (2, 2)), **dict.fromkeys((*UNARY, operator.inv), (1, 1))}
