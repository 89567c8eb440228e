"""Operations on arrays and NumPy scalars while tracing: constants are computed at once, data by the graph.

call(m, np.sum, (a,), {})          ``numpy_folding`` if a is known, else ``translate_numpy_call``
apply(m, operator.add, a, 1)
"""

from __future__ import annotations

import math
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from .. import breaks
from ..engine.break_signals import BreakAfterOperation
from ..interpreter.frames import MISSING
from ..numbers import constant_arrays, numpy_folding
from ..numbers.numpy_tables import ARRAY, NUMBERS
from . import array_attributes, graph_arrays, translate_numpy_call
from .graph_arrays import is_data, tensor_of


def call(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """The result of a function, class or method of NumPy, or MISSING."""
    owner = getattr(function, "__self__", None) if isinstance(function, types.BuiltinFunctionType) else None
    if type(owner) in NUMBERS and function.__name__ == "item" and not args and not kwargs:
        live = constant_arrays.as_live_scalar(m, owner)
        if live is not None:
            return live
    answer = numpy_folding.call(m, function, args, kwargs)
    if answer is not MISSING:
        return answer
    if function in QUESTIONS and len(args) == 1 and not kwargs and type(args[0]) is ARRAY:
        return array_attributes.load(m, args[0], QUESTIONS[function])
    if type(owner) is not ARRAY and type(owner) not in NUMBERS:
        return translate_numpy_call.call(m, function, args, kwargs)
    answer = translate_numpy_call.call_method(m, owner, function.__name__, args, kwargs)
    if answer is MISSING and is_data(m, owner):
        m.stop(breaks.OPAQUE_CALL, f"call of {type(owner).__qualname__}.{function.__name__}")
    return answer


def apply(m: Any, operation: Callable, *operands: Any) -> Any:
    """An operator on arrays or NumPy scalars."""
    if operation in FROM_MATH and any([is_data(m, operand) for operand in operands]):
        numbers = [number_in(m, each) if is_data(m, each) else each for each in operands]
        return m.call(operation, tuple(numbers), {})
    if not any([is_data(m, operand) for operand in operands]):
        if operation in numpy_folding.IN_PLACE and is_own(m, operands[0]) and are_constant(m, operands):
            return m.plainly(operation, *map(numpy_folding.settled, operands))
        return numpy_folding.apply(m, operation, *operands)
    if operation is bool:
        m.stop(breaks.DATA_BRANCH, "the truth of an array")
    if operation in (str, repr, format):
        m.stop(breaks.DATA_READ, "the text of an array")
    return translate_numpy_call.apply(m, operation, *operands)


def are_constant(m: Any, values: Any) -> bool:
    return all([numpy_folding.is_constant(m, value) for value in values])


def on_tensor(m: Any, operation: Callable, tensor: Any, array: Any) -> Any:
    """``tensor + array``: torch leaves it to NumPy. MISSING for operations that torch does itself."""
    if type(array) in NUMBERS:
        number = python_number_of(m, array)
        return MISSING if number is MISSING else m.binary(operation, tensor, number)
    ufunc = translate_numpy_call.OPERATORS.get(operation)
    if ufunc is None or not translate_numpy_call.holds_data(m, (tensor, array)):
        return MISSING
    return translate_numpy_call.computed(
        m, ufunc, translate_numpy_call.implementation_of(ufunc), (tensor, array), {}, asked=operation
    )


def python_number_of(m: Any, value: Any) -> Any:
    """The Python number that torch takes a NumPy scalar with data for, or MISSING."""
    if not is_data(m, value) or value.dtype.kind not in KINDS:
        return MISSING
    return operand_of(m, KINDS[value.dtype.kind], value)


def number_in(m: Any, value: Any) -> Any:
    return operand_of(m, KINDS.get(value.dtype.kind, float), value)


def operand_of(m: Any, kind: type, value: Any) -> Any:
    """``number_of`` as a step of a larger operation. If reading the number breaks, the segment ends before that
    operation: what a break after it takes for its result is the number."""
    try:
        return number_of(m, kind, value)
    except BreakAfterOperation as signal:
        return m.stop(signal.kind, signal.what)


KINDS: dict[str, type] = {"f": float, "i": int, "u": int}


def is_own(m: Any, value: Any) -> bool:
    """Whether it is an array that was made from constants, in this trace."""
    return type(value) is ARRAY and constant_arrays.is_known(m, value) and m.heap.origin_of(value) is None


def subscript(m: Any, array: Any, key: Any) -> Any:
    if is_data(m, array) or is_data(m, key):
        return translate_numpy_call.subscript(m, array, key)
    return numpy_folding.apply(m, operator.getitem, array, key)


def key_of_tensor(m: Any, key: Any) -> Any:
    """A key of a tensor's subscript, with tensors in place of arrays."""
    if type(key) is tuple:
        return tuple([key_of_tensor(m, part) for part in key])
    if type(key) is not ARRAY or key.dtype.kind not in "ib":
        return key
    tensor = tensor_of(m, key)
    return key if tensor is None else tensor


def store_subscript(m: Any, array: Any, key: Any, value: Any) -> Any:
    if is_own(m, array) and are_constant(m, (key, value)):
        m.plainly(operator.setitem, array, numpy_folding.settled(key), numpy_folding.settled(value))
        return None
    translate_numpy_call.store_subscript(m, array, key, value)
    return None


def number_of(m: Any, kind: type, value: Any) -> Any:
    """``float(value)`` or ``int(value)``, or MISSING."""
    if kind in (int, float) and type(value) in NUMBERS:
        live = constant_arrays.as_live_scalar(m, value)
        if live is not None:
            return m.call(kind, (live,), {})
    tensor = tensor_of(m, value) if kind in (int, float) and is_number(m, value) else None
    return MISSING if tensor is None or tensor.is_complex() else m.call(kind, (tensor,), {})


def is_number(m: Any, value: Any) -> bool:
    return (type(value) is ARRAY or type(value) in NUMBERS) and is_data(m, value)


def length(m: Any, array: Any) -> Any:
    if constant_arrays.is_known(m, array):
        return m.plainly(len, array)
    tensor = tensor_of(m, array)
    if tensor is None:
        m.stop(breaks.OPAQUE_CALL, "len() of an array that torch cannot show")
    return m.call(len, (tensor,), {})


def elements(m: Any, array: Any) -> list:
    """What iteration over an array gives."""
    if constant_arrays.is_known(m, array):
        return [constant_arrays.record_constant_array(m, part) for part in array]
    return translate_numpy_call.elements(m, array)


def make_tensor(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.from_numpy(array)`` and similar calls, or MISSING."""
    answer = constant_arrays.make_tensor(m, function, args, kwargs)
    if answer is not MISSING or function not in MAKERS or not is_data(m, args[0]):
        return answer
    tensor = tensor_of(m, args[0])
    if tensor is None or len(args) > 1 or kwargs.keys() - {"dtype"} or kwargs.get("dtype") not in TORCH_DTYPES:
        return MISSING
    dtype = kwargs.get("dtype") or tensor.dtype
    expected = m.plainly(function, *args, **kwargs)
    copies = function is torch.tensor or type(args[0]) in NUMBERS
    made = m.perform(torch.Tensor.to, tensor, dtype, copy=copies) if copies or dtype is not tensor.dtype else None
    if made is None:
        return m.perform(torch.Tensor.detach, tensor)
    return made if made.stride() == expected.stride() else m.perform(torch.Tensor.contiguous, made)


MAKERS = frozenset((torch.from_numpy, torch.as_tensor, torch.asarray, torch.tensor))
TORCH_DTYPES = frozenset((None, *graph_arrays.SHOWN, torch.bfloat16))


QUESTIONS = {getattr(sys.modules["numpy"], name): name for name in ("shape", "ndim", "size") if NUMBERS}
"""Functions that ask for an attribute."""
FUNCTIONS = numpy_folding.FUNCTIONS | translate_numpy_call.FUNCTIONS.keys() | {translate_numpy_call.EMPTY}


FROM_MATH = frozenset(each for each in vars(math).values() if isinstance(each, types.BuiltinFunctionType))


def handler_of(function: Callable) -> Callable:
    return lambda m, args, kwargs: call(m, function, args, kwargs)


HANDLERS: dict[Callable, Callable] = {
    function: handler_of(function) for function in FUNCTIONS if isinstance(function, types.FunctionType)
}
