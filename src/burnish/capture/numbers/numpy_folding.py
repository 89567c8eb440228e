"""Constant folding of NumPy calls: the result of NumPy on constants is a constant.

    x / np.sqrt(x.shape[-1])        np.float64(8.0), and the graph divides by 8.0
    x.reshape(np.prod(x.shape))
    x.masked_fill(mask, np.finfo(np.float32).min)

NumPy scalars are values like Python's own: compared by value if they come from outside, and passed to torch as the
Python numbers that torch takes them for. A function is called while tracing if its arguments and its result are
constants. Arrays are handled by ``constant_arrays``. Where NumPy would warn, the graph ends.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from ...captured_graph.warnings_already_given import filtered
from .. import breaks
from ..interpreter.frames import MISSING, Raised
from . import constant_arrays
from .live_scalars import Live
from .numpy_tables import ARRAY, CLASSES, DTYPES, FACTS, FUNCTIONS, NUMBERS

PLAIN = frozenset((int, float, complex, bool, str, type(None), type(Ellipsis)))
IN_PLACE = frozenset(
    vars(operator)[name]
    for name in ("iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor".split())
)
SEQUENCES = (tuple, list, torch.Size)


def call(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """The result of a function, class or method of NumPy, or MISSING if it is not a constant."""
    given = (*args, *kwargs.values())
    owner = getattr(function, "__self__", None) if isinstance(function, types.BuiltinFunctionType) else None
    if type(owner) in NUMBERS or constant_arrays.is_known(m, owner) and function.__name__ in constant_arrays.METHODS:
        given = (owner, *given)
    elif function not in FUNCTIONS and function not in CLASSES:
        return MISSING
    for value in given:
        m.heap.expose(value)
    varying = [value for value in given if not is_constant(m, value)]
    if varying and not constant_arrays.are_settled(m, varying):
        return MISSING
    return fold(m, function, tuple(map(settled, args)), {name: settled(value) for name, value in kwargs.items()})


def apply(m: Any, operation: Callable, *operands: Any) -> Any:
    """An operator on NumPy scalars."""
    value = MISSING
    varying = [operand for operand in operands if not is_constant(m, operand)]
    if not (type(operands[0]) is ARRAY and operation in IN_PLACE) and (
        not varying or constant_arrays.are_settled(m, varying)
    ):
        value = fold(m, operation, tuple(map(settled, operands)), {})
    if value is MISSING:
        kinds = " and ".join(type(operand).__qualname__ for operand in operands)
        m.stop(breaks.OPAQUE_CALL, f"operator {operation.__name__} on {kinds}")
    return value


def fold(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """``function`` of constants. MISSING if it warns, or returns something mutable."""
    import numpy

    error: BaseException | None = None
    value = MISSING
    try:
        with filtered("error"), numpy.errstate(all="raise"):
            value = m.plainly(function, *args, **kwargs)
    except Raised as raised:
        if isinstance(raised.error, (FloatingPointError, Warning)):
            return MISSING
        error = raised.error
    if error is not None:
        raise Raised(error)
    m.answer = None
    for part in value if type(value) in SEQUENCES else (value,):
        constant_arrays.record_constant_array(m, part)
    is_list = type(value) is list and getattr(function, "__name__", "") != "tolist"
    return value if not is_list and is_constant(m, value) else MISSING


def is_constant(m: Any, value: Any) -> bool:
    """Whether the value is guarded, or will be when it is settled. A number that was read from data, or may differ in
    the next call, has an origin instead."""
    kind = type(value)
    if kind in SEQUENCES:
        return all(is_constant(m, part) for part in value)
    if kind is slice:
        return is_constant(m, (value.start, value.stop, value.step))
    if kind in NUMBERS:
        return not constant_arrays.may_vary(m, value)
    if kind is ARRAY:
        return constant_arrays.is_known(m, value)
    return (
        kind in PLAIN
        or kind in DTYPES
        or kind in FACTS
        or isinstance(value, Live)
        and not value.expression.in_graph
        or isinstance(value, type)
        and (value in CLASSES or value in PLAIN)
    )


def settled(value: Any) -> Any:
    if isinstance(value, Live):
        return value.settle()
    if type(value) is slice:
        return slice(settled(value.start), settled(value.stop), settled(value.step))
    if type(value) in SEQUENCES:
        return (list if type(value) is list else tuple)(map(settled, value))
    return value
