"""Builtin functions while tracing: one entry each, saying what the call is.

An entry is a handler ``(machine, args, kwargs)`` that answers the value, ``PUSHED`` when interpreted code will, or
``MISSING`` to let the general rule decide. ``PURE`` are functions of their arguments alone.
"""

from __future__ import annotations

import bisect
import builtins
import copy
import functools
import importlib
import importlib.util
import itertools
import math
import operator
import os
import sys
import time
import types
import typing
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.autograd.profiler import record_function

from .. import marks
from . import (
    assertions,
    attributes,
    branches,
    breaks,
    calls,
    checkpointing,
    classes,
    container_calls,
    custom_functions,
    gpu_calls,
    gradients,
    iterator_polyfills,
    lazy_modules,
    live,
    logged,
    numpy_arrays,
    numpy_constants,
    numpy_kinds,
    operations,
    optimizers,
    polyfills,
    questions,
    scans,
    tensor_state,
    warned,
    warning_filters,
)
from . import frames as fr
from .attributes import lookup, special_method
from .effects import Effect
from .frames import PUSHED, Generator, Raised
from .heap import MISSING, dict_of
from .live import Expression, Live
from .trust import is_trusted, is_trusted_type

PURE = frozenset(
    (
        abs,
        ascii,
        bin,
        chr,
        hex,
        oct,
        ord,
        pow,
        round,
        divmod,
        issubclass,
        math.prod,
        sys.intern,
        sys.getrecursionlimit,
        sys.getsizeof,
        *(f for f in vars(math).values() if callable(f)),
        *(f for f in vars(operator).values() if isinstance(f, types.BuiltinFunctionType)),
        torch._C._get_tracing_state,
        torch._C._log_api_usage_once,
    )
) - {operator.setitem, operator.delitem, operator.iadd, operator.iconcat}
LIVE_MATH = frozenset(
    (
        abs,
        round,
        math.sqrt,
        math.exp,
        math.log,
        math.sin,
        math.cos,
        math.tanh,
        math.floor,
        math.ceil,
        math.isnan,
        math.isinf,
        math.isfinite,
        math.pow,
        math.log2,
        math.log10,
        math.fabs,
        divmod,
        min,
        max,
    )
)


def _getattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) == 2 and isinstance(args[1], str):
        return attributes.load(m, args[0], _text(args[1]))
    if len(args) == 3 and isinstance(args[1], str):
        try:
            value = attributes.load(m, args[0], _text(args[1]))
        except Raised as raised:
            if isinstance(raised.error, AttributeError):
                return args[2]
            raise
        if value is PUSHED:
            # The attribute is computed by Python code: take the frame back, read under a try.
            m.frame = m.frame.caller
            return m.call(polyfills.getattr_or, args, {})
        return value
    return m.plainly(getattr, *args, **kwargs)


def _text(value: str) -> str:
    return value.settle() if isinstance(value, Live) else value


def _hasattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 2 or not isinstance(args[1], str):
        return m.plainly(hasattr, *args, **kwargs)
    try:
        value = attributes.load(m, args[0], _text(args[1]))
    except Raised as raised:
        if isinstance(raised.error, AttributeError):
            return False
        raise
    if value is PUSHED:
        m.frame = m.frame.caller
        return m.call(polyfills.has_attribute, args, {})
    return True


def _setattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if not isinstance(args[1], str):
        return m.plainly(setattr, *args)
    return _none(m, attributes.store(m, args[0], _text(args[1]), args[2]))


def _none(m: Any, answer: Any) -> Any:
    """A setter called as a function answers None."""
    if answer is PUSHED:
        m.frame.completion = fr.PUSH_NONE
        return PUSHED
    return None


def _delattr(m: Any, args: tuple, kwargs: dict) -> Any:
    if not isinstance(args[1], str):
        return m.plainly(delattr, *args)
    return _none(m, attributes.delete(m, args[0], _text(args[1])))


def _isinstance(m: Any, args: tuple, kwargs: dict) -> Any:
    obj, kinds = args
    if type(obj) is Generator:
        obj = SAMPLES[obj.__class__]
    for kind in _flatten(kinds):
        check, owner = lookup(m, type(kind), "__instancecheck__")
        if isinstance(check, FunctionType) and not is_trusted_type(owner):
            if isinstance(kinds, tuple):
                return m.call(polyfills.instance_check, (obj, kinds), {})
            return m.call(polyfills.truth_of, (check, kind, obj), {})
    return m.plainly(isinstance, obj, kinds)


SAMPLES = {kind: kind(*args) for kind, *args in (  # of what ``Generator`` stands for
    (map, int, ()), (filter, None, ()), (zip,), (enumerate, ()), (reversed, ()), (itertools.accumulate, ()),
    (itertools.chain,), (itertools.islice, (), 0), (itertools.starmap, int, ()), (itertools.takewhile, int, ()),
    (itertools.dropwhile, int, ()), (itertools.filterfalse, int, ()), (itertools.pairwise, ()),
    (itertools.zip_longest,), (itertools.groupby, ()))} | {
    type(sample): sample for sample in ((i for i in ()), iter(iterator_polyfills.Sequence()), iter(int, 0))}


def _flatten(kinds: Any) -> list:
    if isinstance(kinds, tuple):
        return [k for part in kinds for k in _flatten(part)]
    return [kinds]


def _len(m: Any, args: tuple, kwargs: dict) -> Any:
    (value,) = args
    if type(value) in COUNTED:
        origin = m.heap.origin_of(value)
        if origin is None or origin.complete:
            return m.plainly(len, value)
    if isinstance(value, torch.Tensor):
        answer = None if m.open_sizes is None else m.open_sizes.asked("__len__", value, ())
        return m.perform(len, value) if answer is None else answer
    if isinstance(value, Live):
        return len(value.settle())
    if numpy_arrays.is_known(m, value):
        return m.plainly(len, value)
    method = special_method(m, value, "__len__")
    if isinstance(method, types.MethodType):
        return m.call(method, (), {}) if is_trusted_type(type(value)) else m.call(polyfills.length, (method,), {})
    if lookup(m, type(value), "__len__")[0] in (MISSING, None):
        return m.plainly(len, value)
    m.check_readable(len, value)
    origin = m.heap.origin_of(value)
    if origin is not None and not origin.complete and not isinstance(value, tuple):
        if origin.is_written or not isinstance(value, (list, dict)):
            m.heap.complete(origin)
        else:
            m.heap.guard("length", origin.source, len(value))
        return len(value)
    if isinstance(value, operations.BUILTIN_CONTAINERS) or operations.is_known(value):
        return m.plainly(len, value)
    return m.stop(breaks.OPAQUE_CALL, f"len() of a {type(value).__qualname__}")


COUNTED = frozenset((tuple, list, dict, str, torch.Size))


def _next(m: Any, args: tuple, kwargs: dict) -> Any:
    iterator = args[0]
    if len(args) == 2:
        return m.call(polyfills.next_or, args, {}) if type(iterator) is Generator or operations.python_method(
            m, iterator, "__next__") else _next_native(m, iterator, args[1])
    if type(iterator) is Generator:
        m.take_over(iterator)
        return m.resume(iterator, None, fr.NEXT)
    if operations.python_method(m, iterator, "__next__"):
        return m.call(special_method(m, iterator, "__next__"), (), {})
    return _next_native(m, iterator, MISSING)


def _next_native(m: Any, iterator: Any, default: Any) -> Any:
    value = operations.advance(m, iterator)
    if value is operations.EXHAUSTED:
        if default is not MISSING:
            return default
        raise Raised(StopIteration())
    return value


def _iter(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) == 2:
        if lookup(m, type(args[0]), "__call__")[0] is MISSING:
            return m.plainly(iter, *args)
        return m.call(iterator_polyfills.iterate_until, args, {})
    return operations.iterate(m, args[0])


def _sum(m: Any, args: tuple, kwargs: dict) -> Any:
    return (
        m.call(polyfills.sum_, args, kwargs)
        if _wants_python(m, args[:1]) or _holds_objects(args[0])
        else _native(m, sum, args, kwargs)
    )


def _quantifier(native: Callable, polyfill: FunctionType) -> Callable:
    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        if _wants_python(m, args) or _holds_objects(args[0]) or _is_not_seen_into(args[0]):
            return m.call(polyfill, args, kwargs)
        return _native(m, native, args, kwargs)

    return handler


def _is_not_seen_into(items: Any) -> bool:
    """An iterator, or a view: what it will give is not known, and may have rules of its own."""
    return not isinstance(items, (*operations.BUILTIN_CONTAINERS, str, bytes, range, torch.Tensor, Live))


def _extreme(native: Callable, polyfill: FunctionType) -> Callable:
    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        if (
            len(args) > 1
            and not kwargs
            and all(isinstance(a, (int, float)) for a in args)
            and any(isinstance(a, Live) for a in args)
        ):
            return live.apply(native, *args)
        if kwargs.get("key") is not None or _wants_python(m, args[:1]) or any(map(_holds_objects, args)) \
                or len(args) == 1 and _is_not_seen_into(args[0]) or len(args) > 1 and any(_is_object(a) for a in args):
            return m.call(polyfill, args, kwargs)
        return _native(m, native, args, kwargs)

    return handler


def _sorted(m: Any, args: tuple, kwargs: dict) -> Any:
    if kwargs.get("key") is not None or _wants_python(m, args) or _holds_objects(args[0]):
        return m.call(polyfills.sorted_, args, kwargs)
    return _native(m, sorted, args, kwargs)


def _wants_python(m: Any, args: tuple) -> bool:

    for value in args:
        if m.heap.is_outside_iterator(value) and hasattr(type(value), "__next__"):
            m.stop(breaks.OUTSIDE_ITERATOR, f"elements of a {type(value).__qualname__}")
    return any(classes.needs_interpreting(m, a) for a in args)


def _holds_objects(value: Any) -> bool:
    """Whether a container holds something whose operators may be Python, or tensors (whose data may be asked for)."""
    if isinstance(value, dict):
        return any(map(_is_object, value))
    if isinstance(value, operations.BUILTIN_CONTAINERS):
        return any(map(_is_object, value))
    return False


def _is_object(value: Any) -> bool:
    if type(value) in operations.SIMPLE or isinstance(value, Live):
        return False
    if isinstance(value, (tuple, list)):
        return any(map(_is_object, value))
    return not isinstance(value, operations.BUILTIN_CONTAINERS)


def _native(m: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    args, kwargs = tuple(map(calls.plain, args)), {k: calls.plain(v) for k, v in kwargs.items()}
    return calls.native(m, function, args, kwargs)


def _math(function: Callable) -> Callable:
    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        if not kwargs and any(isinstance(a, Live) for a in args) and all(isinstance(a, (int, float)) for a in args):
            try:
                value = live.apply(function, *args)
            except Exception:
                return MISSING
            return value
        if args and isinstance(args[0], torch.Tensor):
            return m.perform(function, *args, **kwargs)
        if args and numpy_arrays.is_known(m, args[0]) and not kwargs:
            return numpy_constants.apply(m, function, *args)
        name = {abs: "__abs__", round: "__round__", math.floor: "__floor__", math.ceil: "__ceil__"}.get(function)
        if name and args and operations.python_method(m, args[0], name):
            return m.call(special_method(m, args[0], name), args[1:], kwargs)
        return MISSING

    return handler


def _id(m: Any, args: tuple, kwargs: dict) -> Any:
    origin = m.heap.origin_of(args[0]) if len(args) == 1 and not isinstance(args[0], Live) else None
    if m.frame.globals is copy.__dict__ and len(args) == 1:
        # The keys of its memo, which is gone when it is done. What counts is which objects are the same.
        if origin is not None:
            m.heap.identity_matters.add(type(args[0]))
        return m.plainly(id, *args, **kwargs)
    if origin is not None and not kwargs:
        # An object from outside: what is guarded is the number, which does not keep the object alive.
        asked = Expression(id, (Expression(None, (origin.source,)),))
        m.heap.guard("outcome", None, (Expression(operator.eq, (asked, id(args[0]))), True))
        return id(args[0])
    return m.stop(breaks.OPAQUE_CALL, "id() answers with an address")


def _hash(m: Any, args: tuple, kwargs: dict) -> Any:
    method = special_method(m, args[0], "__hash__")
    if isinstance(method, types.MethodType):
        return m.call(polyfills.hash_of, (method,), {})
    if isinstance(args[0], Live) or _hashes_by_value(m, args[0]):
        operations.check_key(m, args[0])
        return _native(m, hash, args, kwargs)
    return m.stop(breaks.OPAQUE_CALL, "hash() of an object answers with an address")


def _hashes_by_value(m: Any, value: Any) -> bool:
    if type(value) is tuple:
        return all(_hashes_by_value(m, part) for part in value)
    return m.heap.is_constant_key(value) and value == value  # a NaN hashes by its address


def _repr(m: Any, args: tuple, kwargs: dict) -> Any:
    return text_of(m, repr, args[0])


def _format(m: Any, args: tuple, kwargs: dict) -> Any:
    return operations.format_value(m, args[0], None, args[1] if len(args) > 1 else "")


def text_of(m: Any, convert: Callable, value: Any) -> Any:
    """``str(value)`` or ``repr(value)``."""
    kind = type(value)
    if kind is torch.Size and any(isinstance(size, Live) for size in value):
        return operations.size_text(value)
    if kind in operations.SIMPLE:
        return m.plainly(convert, value)
    if kind in numpy_kinds.VALUES:
        return numpy_constants.apply(m, convert, value)
    if isinstance(value, Live):
        return m.plainly(live.apply, convert, value) if convert is not str or not isinstance(value, str) else value
    if isinstance(value, torch.Tensor):
        return m.perform(convert, value)
    names = ("__str__", "__repr__") if convert is str else ("__repr__",)
    for name in names:
        found, owner = lookup(m, kind, name)
        if isinstance(found, FunctionType):
            method = types.MethodType(found, value)
            return m.call(polyfills.of_kind, (method, str, name + " returned non-string (type {})"), {})
        if found is not MISSING and owner is not object:
            break
    if isinstance(value, operations.BUILTIN_CONTAINERS):
        m.heap.expose(value)
        if not _holds_printable_objects(value):
            operations.settle_all(m, value)
            return m.plainly(convert, value)
        if _is_being_shown(m, value):
            return {list: "[...]", tuple: "(...)", dict: "{...}"}.get(kind, f"{kind.__name__}(...)")
        if kind in (list, set):
            return m.call(polyfills.list_text, (value, *("[]" if kind is list else "{}")), {})
        if kind is tuple:
            return m.call(polyfills.tuple_text, (value,), {})
        if kind is dict:
            return m.call(polyfills.dict_text, (value,), {})
        return m.perform(convert, value)
    if isinstance(value, BaseException):
        m.heap.expose(m.heap.read_field(value, "args", lambda: value.args))
        if len(value.args) == 1:
            return text_of(m, convert, value.args[0]) if convert is str and kind not in (KeyError,) and isinstance(
                value.args[0], str) else m.plainly(convert, value)
        return m.plainly(convert, value)
    if lookup(m, kind, "__repr__")[1] is object and not isinstance(value, (type, types.ModuleType)):
        return m.stop(breaks.OPAQUE_CALL, f"{convert.__name__}() of a {kind.__qualname__} shows its address")
    if operations.is_known_native(kind):
        m.check_readable(convert, value)
        return m.plainly(convert, value)
    return m.stop(breaks.OPAQUE_CALL, f"{convert.__name__}() of a {kind.__qualname__}")


SHOWING = frozenset(f.__code__ for f in (polyfills.list_text, polyfills.tuple_text, polyfills.dict_text))


def _is_being_shown(m: Any, value: Any) -> bool:
    """Whether this is asked for in the middle of the text of the same container, which holds itself."""
    frame = m.frame
    while frame is not None:
        if frame.code.co in SHOWING and frame.locals[0] is value:
            return True
        frame = frame.caller
    return False


def _holds_printable_objects(value: Any, around: tuple = ()) -> bool:
    """``around``: the containers it is in, one of which it may hold again."""
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    for part in parts:
        if isinstance(part, operations.BUILTIN_CONTAINERS):
            if len(around) < 100 and not any(part is one for one in (*around, value)) \
                    and _holds_printable_objects(part, (*around, value)):
                return True
        elif type(part) not in operations.SIMPLE and not isinstance(part, (Live, type)):
            return True
    return False


# ---- effects

def _print(m: Any, args: tuple, kwargs: dict) -> Any:
    if kwargs.get("file") not in (None, sys.stdout, sys.stderr):
        return m.stop(breaks.OPAQUE_CALL, "print() to a file")
    if not kwargs.keys() <= {"sep", "end", "file", "flush"} or not all(
            isinstance(kwargs.get(name), (str, type(None))) for name in ("sep", "end")):
        return m.plainly(print, *args, **kwargs)  # which refuses
    for value in args:
        if needs_python_text(m, value):
            return m.call(polyfills.print_texts, (args, kwargs), {})
    options = {k: v for k, v in kwargs.items() if k != "file"}
    stream = "stderr" if kwargs.get("file") is sys.stderr else "stdout"
    m.effects.append(Effect.of(m, print_to, (stream, options, *args)))
    m.plainly(print_to, stream, {k: _settle(v) for k, v in options.items()}, *args)
    return None


def _settle(value: Any) -> Any:
    return value.settle() if isinstance(value, Live) else value


def print_to(stream: str, options: dict, *args: Any) -> None:
    print(*[a.plain() if isinstance(a, Live) else a for a in args], file=getattr(sys, stream), **options)


def needs_python_text(m: Any, value: Any) -> bool:
    kind = type(value)
    if kind in operations.SIMPLE or isinstance(value, (torch.Tensor, Live)):
        return False
    if isinstance(value, operations.BUILTIN_CONTAINERS):
        m.heap.expose(value)
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return any(needs_python_text(m, p) for p in parts)
    return True


def _log(name: str, m: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if any(needs_python_text(m, value) for value in args[1:]) else logged.traced(name, m, args, kwargs)


# ---- others

def _reduce(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.call(polyfills.reduce, args, kwargs)


def _is_compiling(m: Any, args: tuple, kwargs: dict) -> Any:
    """True to the user's code. Torch's own asks in order to take shortcuts that differ from eager (hooks left out after
    a failure, step counts kept as tensors): to it we are eager. So we are to all code where blocks
    stay calls: they are compiled for what it gives them as plain Python."""
    return not m.options.keeps_blocks and not is_trusted(m.frame.globals.get("__name__"))


def _new(m: Any, args: tuple, kwargs: dict) -> Any:
    """``object.__new__(cls)``."""
    if not args:
        return m.plainly(object.__new__, **kwargs)
    cls = args[0]
    if (
        isinstance(cls, type)
        and cls.__init__ is not object.__init__
        and cls.__new__ is object.__new__
        or len(args) == 1
    ):
        return m.made(m.plainly(object.__new__, cls))
    return m.made(m.plainly(object.__new__, *args, **kwargs))


def new_of(m: Any, owner: type, args: tuple, kwargs: dict) -> Any:
    """``tuple.__new__(cls, items)`` and the like."""
    if owner is object:
        return _new(m, args, kwargs)
    if owner in (tuple, dict, list, set, frozenset, str, int, float) or issubclass(owner, (BaseException, dict, list)):
        if owner in (tuple, frozenset) and len(args) > 1 and _wants_python(m, args[1:2]):
            return m.call(polyfills.tuple_of_class, (owner.__new__, *args), kwargs)
        if owner in (str, int, float):
            args = tuple(map(_settle, args))
        m.heap.expose(args)
        return m.made(m.plainly(owner.__new__, *args, **kwargs))
    return MISSING


def _object_init(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.plainly(object.__init__, *args, **kwargs)


def _object_getattribute(m: Any, args: tuple, kwargs: dict) -> Any:
    return attributes.load_plainly(m, args[0], args[1])


def _object_setattr(m: Any, args: tuple, kwargs: dict) -> Any:
    return _none(m, attributes.store_plainly(m, *args))


def _object_delattr(m: Any, args: tuple, kwargs: dict) -> Any:
    return _none(m, attributes.delete_plainly(m, *args))


def _exception_init(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.plainly(BaseException.__init__, *args, **kwargs)


def _vars(m: Any, args: tuple, kwargs: dict) -> Any:
    if args:
        return attributes.load(m, args[0], "__dict__") if dict_of(args[0]) is not None else m.plainly(vars, args[0])
    return _frame_locals(m, args, kwargs)


def _frame_locals(m: Any, args: tuple, kwargs: dict) -> Any:
    from .machine import namespace_of

    return namespace_of(m.frame)


def _globals(m: Any, args: tuple, kwargs: dict) -> Any:
    m.heap.namespace(m.frame.globals)
    return m.frame.globals


def _dir(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.OPAQUE_CALL, "dir()")


def _exc_info(m: Any, args: tuple, kwargs: dict) -> Any:
    error = m.handled()
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _type_call(m: Any, args: tuple, kwargs: dict) -> Any:
    return classes.construct_by_type(m, args[0], args[1:], kwargs)


def _chain_from_iterable(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.call(iterator_polyfills.chain_from_iterable, args, kwargs)


def _callable(m: Any, args: tuple, kwargs: dict) -> Any:
    return lookup(m, type(args[0]), "__call__")[0] is not MISSING


def _tee(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.call(iterator_polyfills.tee, args, kwargs)


def _fspath(m: Any, args: tuple, kwargs: dict) -> Any:
    path = args[0] if len(args) == 1 and not kwargs else None
    return path if type(path) in (str, bytes) else MISSING


def _import_module(m: Any, args: tuple, kwargs: dict) -> Any:
    name, package = (*args, None, None)[:2]
    if type(name) is str and name.startswith(".") and type(package) is str:
        name = importlib.util.resolve_name(name, package)
    if type(name) is str and name not in sys.modules:
        m.stop(breaks.OPAQUE_CALL, f"first import of {name}")
    return MISSING


def _clock(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.OPAQUE_CALL, "a clock")


def apply_function(m: Any, args: tuple, kwargs: dict) -> Any:
    if getattr(m.region, "runs_both", False):
        m.region.refuse(f"a call of {args[0].__qualname__}.apply")
    return custom_functions.apply(m, args[0], args[1:], kwargs)


BUILTINS: dict[Any, Callable] = {
    getattr: _getattr, hasattr: _hasattr, setattr: _setattr, delattr: _delattr, isinstance: _isinstance, len: _len,
    next: _next, iter: _iter, sum: _sum, any: _quantifier(any, polyfills.any_), all: _quantifier(all, polyfills.all_),
    min: _extreme(min, polyfills.minimum), max: _extreme(max, polyfills.maximum), sorted: _sorted, id: _id, hash: _hash,
    repr: _repr, format: _format, print: _print, vars: _vars, locals: _frame_locals, globals: _globals, dir: _dir,
    sys.exc_info: _exc_info, functools.reduce: _reduce, itertools.chain.from_iterable: _chain_from_iterable,
    time.time: _clock, time.perf_counter: _clock, callable: _callable, itertools.tee: _tee, os.fspath: _fspath,
    warnings.warn: warned.traced,
}
TAKE = {isinstance: (2, 2), len: (1, 1), next: (1, 2), iter: (1, 2), getattr: (2, 3), hasattr: (2, 2), setattr: (3, 3),
        delattr: (2, 2), any: (1, 1), all: (1, 1), id: (1, 1), hash: (1, 1), repr: (1, 1), format: (1, 2), vars: (0, 1),
        locals: (0, 0), globals: (0, 0), sys.exc_info: (0, 0), callable: (1, 1), functools.reduce: (2, 3),
        itertools.chain.from_iterable: (1, 1), itertools.tee: (1, 2)}
"""Of builtins without parameters by name: the least and the most they take. Other calls are errors, before anything."""
TAKE_NAMES = {sum: (1, 2, {"start"}), sorted: (1, 1, {"key", "reverse"}), min: (1, 1 << 30, {"key", "default"}),
              max: (1, 1 << 30, {"key", "default"})}
"""The same of builtins with parameters by name, and those names."""


def is_refused(function: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a builtin takes no such arguments: it says so itself then."""
    takes = TAKE.get(function)
    if takes is not None:
        return bool(kwargs) or not takes[0] <= len(args) <= takes[1]
    least, most, names = TAKE_NAMES.get(function, (0, 1 << 30, None))
    return not least <= len(args) <= most or names is not None and not kwargs.keys() <= names


for _function in LIVE_MATH - {min, max}:
    BUILTINS[_function] = _math(_function)
for _name in ("bisect_left", "bisect_right"):
    BUILTINS[getattr(bisect, _name)] = functools.partial(
        lambda polyfill, m, args, kwargs: m.call(polyfill, args, kwargs), getattr(polyfills, _name))
BUILTINS.update(gpu_calls.BUILTINS)
BUILTINS[torch._C._group_tensors_by_device_and_dtype] = optimizers.group_tensors
BUILTINS[builtins.__build_class__] = lambda m, args, kwargs: m.stop(breaks.OPAQUE_CALL, "a class statement")

def _cast(m: Any, args: tuple, kwargs: dict) -> Any:
    return args[1] if len(args) == 2 else MISSING


def _enter_record(m: Any, args: tuple, kwargs: dict) -> Any:
    """``record_function`` names a stretch of work for the profiler. In a graph that stretch no longer exists, and
    where plain Python leaves it, nothing is to be ended."""
    attributes.store(m, args[0], "run_callbacks_on_exit", False)
    return args[0]


def _exit_record(m: Any, args: tuple, kwargs: dict) -> Any:
    return None


def _remove_hook(m: Any, args: tuple, kwargs: dict) -> Any:
    """Torch reads the table of hooks while the graph runs: a removal must happen before what follows."""
    return m.stop(breaks.TENSOR_STATE, "removal of a hook")


def _keep_name(m: Any, args: tuple, kwargs: dict) -> Any:
    """Torch names the code of what ``torch.no_grad()`` decorates after the mode, for profilers."""
    return None


PYTHON_FUNCTIONS: dict[Any, Callable] = {
    torch.utils.hooks.RemovableHandle.remove: _remove_hook,
    typing.cast: _cast,
    record_function.__enter__: _enter_record,
    record_function.__exit__: _exit_record,
    torch.compiler.is_compiling: _is_compiling,
    marks.is_compiling: _is_compiling,
    optimizers.HEALTH_CHECK: optimizers.check_capturing,
    torch.compiler.is_dynamo_compiling: _is_compiling,
    torch._utils.is_compiling: _is_compiling,
    functools.reduce: _reduce,
    importlib.import_module: _import_module,
    **{getattr(logged.Logger, name): functools.partial(_log, name) for name in logged.NAMES},
}

_all_true = getattr(torch.distributions.distribution, "_all_true_or_runtime_assert", None)
if _all_true is not None:
    PYTHON_FUNCTIONS[_all_true] = assertions.all_true
PYTHON_FUNCTIONS[torch._check_tensor_all] = assertions.tensor_all
_set_name = getattr(torch.utils._contextlib, "_set_stack_frame_name", None)
if _set_name is not None:
    PYTHON_FUNCTIONS[_set_name] = _keep_name
PYTHON_FUNCTIONS.update(branches.HANDLERS)
PYTHON_FUNCTIONS.update(checkpointing.HANDLERS)
PYTHON_FUNCTIONS.update({function: tensor_state.before_hooks(f) for function, f in gradients.HANDLERS.items()})
PYTHON_FUNCTIONS.update(lazy_modules.HANDLERS)
PYTHON_FUNCTIONS.update(numpy_constants.HANDLERS)
PYTHON_FUNCTIONS.update(tensor_state.HANDLERS)
PYTHON_FUNCTIONS.update(warning_filters.HANDLERS)
PYTHON_FUNCTIONS.update(questions.HANDLERS)
PYTHON_FUNCTIONS.update(gpu_calls.HANDLERS)
PYTHON_FUNCTIONS.update(scans.HANDLERS)
_apply = vars(torch.autograd.Function).get("apply")
if isinstance(_apply, classmethod):  # Python in torch 2.11, C later
    PYTHON_FUNCTIONS[_apply.__func__] = apply_function



def _generator_method(name: str) -> Callable:
    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        return container_calls.call_generator(m, args[0], name, args[1:], kwargs)

    return handler


for _name in ("send", "throw", "close", "__next__"):
    PYTHON_FUNCTIONS[getattr(Generator, _name)] = _generator_method(_name)

UNBOUND: dict[Any, Callable] = {
    object.__init__: _object_init, object.__getattribute__: _object_getattribute, object.__setattr__: _object_setattr,
    object.__delattr__: _object_delattr, BaseException.__init__: _exception_init, Exception.__init__: _exception_init,
    type.__call__: _type_call,
}
UNBOUND_TAKE = {object.__getattribute__: 2, object.__setattr__: 3, object.__delattr__: 2}
"""How many arguments they take at least, where that is more than one."""


def substitute(original: Any, polyfill: FunctionType) -> None:
    """``substitute_in_graph``: calls of ``original`` are calls of ``polyfill`` while tracing."""
    handler: Callable = lambda m, args, kwargs: m.call(polyfill, args, kwargs)  # noqa: E731
    if isinstance(original, FunctionType):
        PYTHON_FUNCTIONS[original] = handler
    elif isinstance(original, types.BuiltinFunctionType):
        BUILTINS[original] = handler
    else:
        UNBOUND[original] = handler
