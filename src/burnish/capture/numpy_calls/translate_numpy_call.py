"""Calls of NumPy on data: a function, method or operator becomes torch calls of the graph.

    np.sin(a) * 2 + a.mean(axis=1)[:, None]
    a += b;  a[1:] = 0;  a.T @ a

NumPy computes the expected result of the same arguments first, and the result of the torch calls must have its dtype,
size and strides and share memory where it does. If they differ, or if there are no such torch calls, the graph ends
before the call, and NumPy is called. In-place operations write into the tensor that the array shows.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from ...captured_graph.warnings_already_given import filtered
from ...concurrency.outside_errors import reraise_from_outside
from .. import breaks
from ..engine.break_signals import BreakAfterOperation
from ..engine.interpreted_or_native import OUR_PATH
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.frames import MISSING, Raised
from ..numbers import constant_arrays, numpy_folding
from ..numbers.live_scalars import Live
from ..numbers.numpy_tables import ARRAY, NUMBERS
from ..python.messages import warnings_warn
from . import array_functions, graph_arrays, indexing, reductions, ufuncs
from .graph_arrays import is_data, tensor_of
from .ufuncs import implementation_of

FUNCTIONS: dict[Any, Callable] = {}
METHODS: dict[str, Callable] = {}
OPERATORS: dict[Callable, Any] = {}
IN_PLACE: dict[Callable, Any] = {}

EMPTY: Any = None

if NUMBERS:
    _numpy: Any = sys.modules["numpy"]
    EMPTY = _numpy.empty
    for _name, _function in {**reductions.FUNCTIONS, **array_functions.FUNCTIONS}.items():
        FUNCTIONS[operator.attrgetter(_name)(_numpy)] = _function
    METHODS.update({name: reductions.FUNCTIONS[name] for name in reductions.METHODS})
    METHODS.update({name: array_functions.FUNCTIONS[name] for name in array_functions.METHODS})
    METHODS.update(conj=ufuncs.conjugate, conjugate=ufuncs.conjugate, flatten=array_functions.copy_flat)
    METHODS.update(astype=array_functions.astype)
    METHODS.update(reshape=array_functions.reshape_to, transpose=array_functions.transpose_to)
    _NAMES = """
        add:add sub:subtract mul:multiply truediv:divide floordiv:floor_divide mod:remainder pow:power matmul:matmul
        and_:bitwise_and or_:bitwise_or xor:bitwise_xor lshift:left_shift rshift:right_shift
    """
    for _pair in _NAMES.split():
        _name, _, _ufunc = _pair.partition(":")
        OPERATORS[getattr(operator, _name)] = getattr(_numpy, _ufunc)
        IN_PLACE[getattr(operator, f"i{_name.rstrip('_')}")] = getattr(_numpy, _ufunc)
    for _pair in "lt:less le:less_equal gt:greater ge:greater_equal eq:equal ne:not_equal".split():
        _name, _, _ufunc = _pair.partition(":")
        OPERATORS[getattr(operator, _name)] = getattr(_numpy, _ufunc)
    OPERATORS.update({operator.neg: _numpy.negative, operator.pos: _numpy.positive, operator.invert: _numpy.invert})
    OPERATORS[operator.abs] = OPERATORS[abs] = _numpy.absolute


def call(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """The result of a NumPy function on data; MISSING if this one is not part of a graph."""
    if function is EMPTY:
        return computed(m, function, array_functions.empty, args, kwargs)
    if not holds_data(m, (*args, *kwargs.values())):
        return MISSING
    if function in FUNCTIONS:
        implementation: Any = FUNCTIONS[function]
    elif function in NUMBERS and len(args) == 1 and not kwargs and type(args[0]) in NUMBERS:
        return computed(m, function, as_kind(function), args, {})
    elif function in ufuncs.UFUNCS:
        implementation = implementation_of(function)
    else:
        return MISSING
    at = ufuncs.place_of_out(function)
    if len(args) > at:  # np.multiply(a, b, a)
        args, kwargs = (*args[:at], *args[at + 1 :]), {**kwargs, "out": args[at]}
    target = kwargs.get("out")
    if target is None:
        return computed(m, function, implementation, args, kwargs)
    target = target[0] if type(target) is tuple and len(target) == 1 else target
    return written(m, function, implementation, args, {k: v for k, v in kwargs.items() if k != "out"}, target)


def as_kind(kind: Any) -> Callable:
    return lambda number: number.to(ufuncs.torch_dtype(kind))


def holds_data(m: Any, values: Any) -> bool:
    """Whether there is data of the graph in these arguments: an array, or a tensor that NumPy takes for one."""
    return any(
        [
            is_data(m, value)
            or type(value) in TENSOR_TYPES
            or type(value) in (tuple, list)
            and any(type(part) in TENSOR_TYPES for part in value)
            for value in values
        ]
    )


def call_method(m: Any, value: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """``value.name(*args)`` of an array or scalar with data."""
    if name == "fill" and len(args) == 1 and type(value) is ARRAY and not kwargs:
        return store_subscript(m, value, Ellipsis, args[0])
    implementation = METHODS.get(name)
    if name in ("item", "tolist") and not args and not kwargs:
        return read(m, value, name)
    if implementation is None or "out" in kwargs or not is_data(m, (value, *args, *kwargs.values())):
        return MISSING
    if len(args) + 1 > ufuncs.place_of_out(getattr(sys.modules["numpy"], name, None)):
        return MISSING
    real = getattr(type(value), name)
    return computed(m, real, implementation, (value, *args), kwargs)


def apply(m: Any, operation: Callable, *operands: Any) -> Any:
    """An operator on arrays or scalars with data."""
    ufunc = IN_PLACE.get(operation)
    if ufunc is not None and type(operands[0]) is ARRAY:
        return written(m, ufunc, implementation_of(ufunc), operands, {}, operands[0])
    ufunc = OPERATORS.get(operation) if ufunc is None else ufunc
    if ufunc is None:
        return refuse(m, f"operator {operation.__name__}")
    return computed(m, ufunc, implementation_of(ufunc), operands, {}, asked=operation)


def read(m: Any, value: Any, name: str) -> Any:
    """``value.item()`` or ``value.tolist()``: the number of a tensor's, which may stay in the graph."""
    tensor = tensor_of(m, value)
    return MISSING if tensor is None else m.call(getattr(tensor, name), (), {})


def number_of(m: Any, kind: type, value: Any) -> Any:
    """``float(value)`` or ``int(value)`` of an array or scalar with data."""
    tensor = tensor_of(m, value)
    return MISSING if tensor is None else m.call(kind, (tensor,), {})


# ---- a call


def computed(
    m: Any, function: Callable, implementation: Any, args: tuple, kwargs: dict, asked: Callable | None = None
) -> Any:
    """The result of a call that writes to nothing. ``asked``: what the program calls, if it is not ``function``."""
    expected, warned = expected_of(m, asked or function, args, kwargs)
    for value in args:
        if expected is value and type(value) is ARRAY:
            return value  # ``np.asarray(a)``
    mark = m.recorder.mark()
    try:
        args, kwargs = with_arrays(m, args), {name: with_arrays(m, value) for name, value in kwargs.items()}
        found = tensors_for(m, function, implementation, args, kwargs)
        if isinstance(expected, torch.Tensor):
            made = as_tensor(m, function, expected, found)
        else:
            made = shown(m, function, expected, found, arrays_in((args, tuple(kwargs.values()))))
    except Mismatch as mismatch:
        m.recorder.undo_to(mark)
        refuse(m, name_of(function), mismatch)
    for warning in warned:
        warnings_warn.traced(m, (str(warning.message), warning.category), {})
    return answered(m, made)


def with_arrays(m: Any, value: Any) -> Any:
    """An argument with arrays in place of tensors, as NumPy sees them."""
    kind = type(value)
    if kind in (tuple, list):
        return kind([with_arrays(m, part) for part in value])
    if kind not in TENSOR_TYPES:
        return value
    why = graph_arrays.why_not_shown(m, value)
    if why is not None:
        raise Mismatch(why)
    return graph_arrays.array_of(m, value)


def as_tensor(m: Any, function: Callable, expected: torch.Tensor, found: Any) -> Any:
    """The tensor that NumPy's functions return for tensors: torch makes it of the resulting array."""
    if function not in ufuncs.UFUNCS or not isinstance(found, torch.Tensor):
        raise Mismatch("NumPy calls a method of the tensor")
    if found.dtype is torch.bool:
        found = performed(m, torch.Tensor.to, found, torch.uint8)
    if found.dtype is not expected.dtype or found.shape != expected.shape or found.stride() != expected.stride():
        raise Mismatch("torch makes another tensor of it")
    return found


def written(m: Any, function: Any, implementation: Any, args: tuple, kwargs: dict, target: Any) -> Any:
    """The result of a call is written into the array ``target``."""
    if type(target) is not ARRAY:
        refuse(m, name_of(function), "it writes to something that is not an array")
    into = target_of(m, target)
    numpy = sys.modules["numpy"]
    copied = numpy.empty_like(target)
    if expected_of(m, function, args, {**kwargs, "out": copied})[1]:
        refuse(m, name_of(function), "it warns")
    mark = m.recorder.mark()
    try:
        found = tensors_for(m, function, implementation, args, kwargs)
        if not isinstance(found, torch.Tensor) or tuple(found.shape) != target.shape:
            raise Mismatch("the result has another size")
        performed(m, torch.Tensor.copy_, into, found)
    except Mismatch as mismatch:
        m.recorder.undo_to(mark)
        refuse(m, name_of(function), mismatch)
    return answered(m, target)


def answered(m: Any, value: Any) -> Any:
    if m.frame is not None:
        m.answer = (m.frame, m.frame.pc, value)
    return value


def target_of(m: Any, array: Any) -> torch.Tensor:
    """The tensor whose memory an array shows that is about to be written to."""
    if constant_arrays.is_known(m, array) and m.heap.origin_of(array) is None:
        constant_arrays.make_tensor(m, torch.from_numpy, (array,), {})
    tensor = tensor_of(m, array)
    if tensor is None or constant_arrays.is_known(m, array) or m.region is not None:
        refuse(m, "a write to an array", "torch cannot show its memory")
    return tensor  # type: ignore[return-value]


def expected_of(m: Any, function: Callable, args: tuple, kwargs: dict) -> tuple[Any, list]:
    """What NumPy makes of the arguments as they are now, and how it warns about their types. Its errors, and warnings
    about lines of its own, come from a call behind the graph."""
    check_arguments(m, function, (*args, *kwargs.values()))
    numpy = sys.modules["numpy"]
    if any(mode not in ("warn", "ignore") for mode in numpy.geterr().values()):
        refuse(m, name_of(function), "np.errstate asks for errors")
    try:
        with numpy.errstate(all="ignore"), filtered("always") as warned:
            made = function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})
    except Exception as error:  # NumPy's
        reraise_from_outside(error)
        return refuse(m, name_of(function), f"it raises {type(error).__name__}")
    if any(not warning.filename.startswith(OUR_PATH) for warning in warned):
        refuse(m, name_of(function), "it warns")
    return made, warned


def check_arguments(m: Any, function: Callable, values: Any) -> None:
    for value in values:
        m.heap.expose(value)
        if type(value) in (tuple, list):
            check_arguments(m, function, value)
        elif type(value) is slice:
            check_arguments(m, function, (value.start, value.stop, value.step))
        elif type(value) not in TENSOR_TYPES and not is_data(m, value) and not numpy_folding.is_constant(m, value):
            refuse(m, name_of(function), f"an argument is a {type(value).__qualname__}")


def plain(value: Any) -> Any:
    if isinstance(value, Live):
        return value.plain()
    if type(value) in (tuple, list):
        return type(value)(map(plain, value))
    if type(value) is slice:
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    return value


class Mismatch(Exception):
    """The torch calls do not make what NumPy makes."""

    kind = breaks.OPAQUE_CALL


def tensors_for(m: Any, function: Callable, implementation: Any, args: tuple, kwargs: dict) -> Any:
    """What the torch calls make of the arguments."""
    if implementation is None:
        raise Mismatch("there is no torch function for it")
    if getattr(implementation, "reads_sizes", False):
        fix_sizes(m, args)
    if function in ufuncs.UFUNCS:
        kwargs = {**kwargs, "kinds": tuple([kind_of(m, value) for value in args])}
    if not takes(implementation, args, kwargs):
        raise Mismatch("torch has no such argument")
    found = performed(
        m,
        implementation,
        *[operand(m, value) for value in args],
        **{name: value if name == "kinds" else operand(m, value) for name, value in kwargs.items()},
    )
    if found is NotImplemented:
        raise Mismatch("torch takes these arguments in another way")
    return found


def takes(function: Callable, args: tuple, kwargs: dict) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def fix_sizes(m: Any, arrays: Any) -> None:
    """The torch calls depend on the sizes of these arrays, which must be constants therefore."""
    for array in arrays_in(arrays):
        tensor = tensor_of(m, array)
        if tensor is None or m.unbacked_sizes.has_unknown_size(tensor):
            raise Mismatch("its size depends on the data")
        if m.symbolic_sizes is not None:
            m.symbolic_sizes.specialize_sizes(tensor)


def performed(m: Any, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
    """Call torch functions under the recorder. What torch refuses is left to NumPy."""
    try:
        return m.perform_as(function, args, kwargs, None, None)
    except (BreakAfterOperation, Raised) as signal:
        error = signal.error
        if error is not None and not isinstance(error, (RuntimeError, IndexError, ValueError)):
            raise error from None  # of this package
        refusal = Mismatch((str(error) if error is not None else getattr(signal, "what", "")).partition("\n")[0])
        refusal.kind = getattr(signal, "kind", None) or refusal.kind if error is None else refusal.kind
    raise refusal


def operand(m: Any, value: Any) -> Any:
    """An argument of the torch calls for one of NumPy's."""
    kind = type(value)
    if kind is ARRAY or kind in NUMBERS and is_data(m, value):
        tensor = tensor_of(m, value)
        if tensor is None:
            raise Mismatch("torch cannot show an argument's memory")
        return tensor
    if kind in NUMBERS:
        return value.item()
    if kind in (tuple, list):
        return kind([operand(m, part) for part in value])
    return value


def kind_of(m: Any, value: Any) -> Any:
    """The dtype of an operand of a universal function; the Python type of a number."""
    if type(value) is ARRAY or type(value) in NUMBERS:
        return value.dtype
    if isinstance(value, bool):
        return sys.modules["numpy"].dtype(bool)
    for kind in ufuncs.WEAK:
        if isinstance(value, kind):
            return kind
    raise Mismatch(f"an operand is a {type(value).__qualname__}")


# ---- the result


def shown(m: Any, function: Callable, expected: Any, found: Any, given: list) -> Any:
    """The array, scalar or sequence that shows what the torch calls made, which must be like NumPy's ``expected``."""
    kind = type(expected)
    if kind in (tuple, list):
        if not isinstance(found, (tuple, list)) or len(found) != len(expected):
            raise Mismatch("the results have another number")
        return kind([shown(m, function, e, f, given) for e, f in zip(expected, found, strict=True)])
    if not isinstance(found, torch.Tensor) or kind is not ARRAY and kind not in NUMBERS:
        raise Mismatch(f"the result is a {kind.__qualname__}")
    numpy = sys.modules["numpy"]
    if kind is numpy.bool_:
        raise Mismatch("the result is one bool, which Python knows by identity")
    if found.dtype is not ufuncs.DTYPES.get(expected.dtype.char) or tuple(found.shape) != expected.shape:
        raise Mismatch(f"NumPy makes {expected.dtype}{list(expected.shape)} of it, torch {found.dtype}, {found.shape}")
    if kind is not ARRAY:
        return graph_arrays.scalar_of(m, found)
    owners = [array for array in given if numpy.may_share_memory(expected, array)]
    if owners:
        if found.data_ptr() != expected.ctypes.data or not has_strides(found, expected) or not expected.flags.writeable:
            raise Mismatch("NumPy shares the argument's memory")
        return graph_arrays.array_of(m, found)
    if found._is_view() or any(shares(m, found, array) for array in given):
        found = performed(m, torch.clone, found)
    return graph_arrays.array_of(m, in_layout(m, found, expected))


def has_strides(found: torch.Tensor, expected: Any) -> bool:
    size = found.element_size()
    return all(
        length == 1 or stride * size == wanted
        for length, stride, wanted in zip(found.shape, found.stride(), expected.strides, strict=True)
    )


def in_layout(m: Any, found: torch.Tensor, expected: Any) -> torch.Tensor:
    """The result with NumPy's strides."""
    if not found.numel() or has_strides(found, expected):
        return found
    order = sorted(range(found.ndim), key=lambda dim: (-expected.strides[dim], dim))
    back = sorted(range(found.ndim), key=order.__getitem__)
    packed = performed(m, torch.Tensor.contiguous, performed(m, torch.permute, found, tuple(order)))
    made: torch.Tensor = performed(m, torch.permute, packed, tuple(back))
    if not has_strides(made, expected):
        raise Mismatch("the result has other strides")
    return made


def shares(m: Any, found: torch.Tensor, array: Any) -> bool:
    entry = m.shared_arrays.get(id(array))
    storage = found.untyped_storage().data_ptr()
    return entry is not None and entry[0] is array and entry[1].untyped_storage().data_ptr() == storage


def arrays_in(values: Any) -> list:
    found = []
    for value in values:
        if type(value) is ARRAY:
            found.append(value)
        elif type(value) in (tuple, list):
            found += arrays_in(value)
    return found


# ---- items


def subscript(m: Any, array: Any, key: Any) -> Any:
    """``array[key]``"""
    expected, warned = expected_of(m, operator.getitem, (array, key), {})
    mark = m.recorder.mark()
    try:
        index = key_for(m, key) if not warned else refuse(m, "a subscript", "it warns")
        tensor = operand(m, array)
        if m.symbolic_sizes is not None:
            m.symbolic_sizes.check_slices(tensor, index)
        found = performed(m, indexing.select, tensor, index)
        made = shown(m, operator.getitem, expected, found, [array])
    except Mismatch as mismatch:
        m.recorder.undo_to(mark)
        refuse(m, "a subscript", mismatch)
    return answered(m, made)


def store_subscript(m: Any, array: Any, key: Any, value: Any) -> None:
    """``array[key] = value``"""
    into = target_of(m, array)
    _, warned = expected_of(m, operator.setitem, (array.copy(), key, value), {})
    mark = m.recorder.mark()
    try:
        index = key_for(m, key) if not warned else refuse(m, "an item assignment", "it warns")
        content = operand(m, value)
        if m.symbolic_sizes is not None:
            m.symbolic_sizes.check_slices(into, index)
        if not isinstance(content, (torch.Tensor, int, float, bool)):
            raise Mismatch("the content is not an array")
        performed(m, indexing.assign, into, index, content)
    except Mismatch as mismatch:
        m.recorder.undo_to(mark)
        refuse(m, "an item assignment", mismatch)
    answered(m, None)


def key_for(m: Any, key: Any) -> Any:
    index = indexing.key_for(key, lambda part: operand(m, part))
    if index is NotImplemented:
        raise Mismatch("torch takes these indices in another way")
    return index


def elements(m: Any, array: Any) -> list:
    """The elements of an array, as an iterator gives them."""
    try:
        fix_sizes(m, [array])
    except Mismatch as mismatch:
        refuse(m, "iteration", mismatch)
    if not array.ndim:
        return m.plainly(list, array)  # type: ignore[no-any-return]
    return [subscript(m, array, i) for i in range(len(array))]


def function_named(name: str) -> Any:
    return getattr(sys.modules["numpy"], name)


def name_of(function: Any) -> str:
    return f"np.{function.__name__}"


def refuse(m: Any, what: str, why: Any = "") -> Any:
    kind = why.kind if isinstance(why, Mismatch) else breaks.OPAQUE_CALL
    return m.stop(kind, f"{what} of an array: {why}" if str(why) else f"{what} of an array")
