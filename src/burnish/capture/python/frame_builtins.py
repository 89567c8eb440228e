"""Builtins that look at the frame that calls them, while tracing: ``locals()``, ``exec()``, the handled error."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, GetSetDescriptorType, MethodType
from typing import Any

import torch

from .. import breaks
from ..engine.interpreted_or_native import is_trusted_type
from ..interpreter.frame_introspection import exc_info, exception, module_name, namespace_of
from ..interpreter.frames import MISSING
from ..interpreter.reads_past_overrides import dict_of
from ..numbers.live_scalars import Live
from .attributes.class_lookup import lookup
from .polyfills import object_polyfills


def _locals(m: Any, args: tuple, kwargs: dict) -> Any:
    return namespace_of(m.frame, m.load_cell)


def _globals(m: Any, args: tuple, kwargs: dict) -> Any:
    if id(m.frame.globals) not in m.heap.fresh:
        m.heap.namespace(m.frame.globals)
    return m.frame.globals


def _dir(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs:
        return m.stop(breaks.OPAQUE_CALL, "dir()") if not args else m.plainly(dir, *args, **kwargs)
    (obj,) = args
    kind = type(obj)
    found, owner = lookup(m, kind, "__dir__")
    if isinstance(found, FunctionType):
        return m.call(object_polyfills.sorted_names, (MethodType(found, obj),), {})
    if owner not in (object, type) or reads_in_python(m, obj) or issubclass(kind, (torch.Tensor, Live)):
        return m.stop(breaks.OPAQUE_CALL, f"dir() of a {kind.__qualname__}")
    for base in obj.__mro__ if owner is type else kind.__mro__:
        guard_names(m, base)
    table = None if owner is type else dict_of(obj)
    members = None if table is None else m.heap.members(obj)
    if members is not None:
        m.heap.complete(members)
    return m.made(m.plainly(dir, obj))


def reads_in_python(m: Any, obj: Any) -> bool:
    """Whether code of the user's says what ``__dict__``, ``__class__`` or ``__bases__`` of an object is."""
    kind = type(obj)
    return (
        isinstance(lookup(m, kind, "__getattribute__")[0], FunctionType)
        or lookup(m, kind, "__getattr__")[0] is not MISSING
        or type(lookup(m, kind, "__dict__")[0]) not in (GetSetDescriptorType, type(MISSING))
        or type(lookup(m, kind, "__class__")[0]) is not GetSetDescriptorType
    )


def guard_names(m: Any, cls: type) -> None:
    """Guard which names a class has, if it may get others."""
    if is_trusted_type(cls) or id(cls) in m.heap.fresh:
        return
    members = m.heap.members(cls)
    if members is not None and m.heap.changed(members):
        m.stop(breaks.OPAQUE_CALL, f"dir() of {cls.__qualname__}, which has been changed")
    m.heap.guard_answer(has_names, m.heap.sources.pin(cls), frozenset(cls.__dict__))


def has_names(cls: type, names: frozenset) -> bool:
    return cls.__dict__.keys() == names


def _digits(m: Any, args: tuple, kwargs: dict) -> Any:
    """``sys.get_int_max_str_digits()``, a setting of the interpreter."""
    found = m.plainly(sys.get_int_max_str_digits, *args, **kwargs)
    m.heap.guard_answer(has_digits, m.heap.sources.pin(sys), found)
    return found


def has_digits(module: Any, number: int) -> bool:
    return module.get_int_max_str_digits() == number


def _module_name(m: Any, args: tuple, kwargs: dict) -> Any:
    name = module_name(m, args, kwargs)
    return m.stop(breaks.OPAQUE_FUNCTION, "it looks at the interpreter's frames") if name is MISSING else name


def _trace_function(m: Any, args: tuple, kwargs: dict) -> Any:
    """``sys.gettrace()``: programs ask whether they are debugged."""
    if args or kwargs or sys.gettrace() is not None:
        return MISSING
    m.heap.guard_answer(has_no_trace_function, m.heap.sources.pin(sys))
    return None


def has_no_trace_function(module: Any) -> bool:
    return module.gettrace() is None


def _of_text(rule: str, m: Any, args: tuple, kwargs: dict) -> Any:
    """A rule for code in a string, which few programs make: the rules are imported when they are first needed."""
    from . import evaluated_text

    return getattr(evaluated_text, rule)(m, args, kwargs)


BUILTINS: dict[Any, Callable] = {
    locals: _locals,
    globals: _globals,
    eval: functools.partial(_of_text, "evaluate"),
    exec: functools.partial(_of_text, "execute"),
    compile: functools.partial(_of_text, "compile_text"),
    dir: _dir,
    sys.exc_info: exc_info,
    sys.exception: exception,
    sys.gettrace: _trace_function,
    sys.get_int_max_str_digits: _digits,
}
if hasattr(sys, "_getframemodulename"):  # from Python 3.12 on
    BUILTINS[sys._getframemodulename] = _module_name
