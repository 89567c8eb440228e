"""Opcodes for calls and for making functions."""

from __future__ import annotations

from types import FunctionType

from ...numbers.live_scalars import settled
from ..frames import NULL, PUSHED, Raised
from .handler_registry import op


@op("CALL")
def call(m, f, arg):
    """3.11 and 3.12: ``NULL, callable, args`` or ``callable, self, args``; arg is (count, keyword names)."""
    total, names = arg
    stack = f.stack
    base = len(stack) - total - 2
    function = stack[base]
    if function is NULL:
        function, args = stack[base + 1], stack[base + 2 :]
    else:
        args = stack[base + 1 :]
    if names:
        return finish_call(m, f, function, args, names, base)
    try:  # make_call(), inlined for the most common instruction
        value = m.call(function, tuple(args), {})
    except Raised:
        if m.frame is not f:
            del stack[base:]
        raise
    del stack[base:]
    if value is PUSHED:
        return True
    stack.append(value)
    return None


def finish_call(m, f, function, args: list, names: tuple, base: int):
    kwargs = {}
    if names:
        at = len(args) - len(names)
        kwargs = dict(zip(names, args[at:], strict=True))
        del args[at:]
    return make_call(m, f, function, tuple(args), kwargs, base)


def make_call(m, f, function, args: tuple, kwargs: dict, base: int):
    try:
        value = m.call(function, args, kwargs)
    except Raised:
        if m.frame is not f:
            # throw() of a generator: the error is raised inside it, and the result comes when it yields.
            del f.stack[base:]
        raise
    del f.stack[base:]
    if value is PUSHED:
        return True
    f.stack.append(value)
    return None


@op("CALL_FUNCTION_EX")
def call_function_ex(m, f, arg):
    """3.11 and 3.12: ``NULL, callable, args[, kwargs]``."""
    stack = f.stack
    base = len(stack) - (3 + (arg & 1))
    return spread_call(m, f, stack[base + 1], base, arg)


def spread_call(m, f, function, base: int, arg: int):
    stack = f.stack
    at = -2 if arg & 1 else -1
    args, kwargs = stack[at], stack[-1] if arg & 1 else {}
    if kwargs is NULL:  # from 3.14 on
        kwargs = {}
    if type(args) is not tuple:
        # Convert it to a tuple first, then run the instruction again.
        spread = m.to_tuple(args, function)
        if spread is PUSHED:
            return m.redo_with(f, at)
        stack[at] = args = spread
    if arg & 1 and type(kwargs) is not dict:
        kwargs = m.to_dict(kwargs)
        if kwargs is PUSHED:
            return m.redo_with(f, -1)
    if kwargs and not all([type(name) is str for name in kwargs]):
        if not all(isinstance(name, str) for name in kwargs):
            raise Raised(TypeError("keywords must be strings"))
        kwargs = {settled(name): value for name, value in kwargs.items()}
    return make_call(m, f, function, args, kwargs, base)


@op("MAKE_FUNCTION")
def make_function(m, f, arg):
    """3.11 and 3.12: defaults, keyword defaults, annotations and closure are below the code object."""
    stack = f.stack
    co = stack.pop()
    closure = stack.pop() if arg & 8 else None
    annotations = stack.pop() if arg & 4 else None
    by_name = stack.pop() if arg & 2 else None
    defaults = stack.pop() if arg & 1 else None
    function = FunctionType(co, f.globals, co.co_name, defaults, closure)
    function.__qualname__ = co.co_qualname
    function.__kwdefaults__ = by_name
    if annotations:
        function.__annotations__ = (
            dict(zip(annotations[::2], annotations[1::2], strict=True))
            if isinstance(annotations, tuple)
            else annotations
        )
    m.made(function)
    stack.append(function)


def callable_text(function) -> str:
    """A callable as CPython names it in errors about ``*`` and ``**``."""
    name = getattr(function, "__qualname__", None)
    if name is None:
        return str(function)
    module = getattr(function, "__module__", None)
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"
