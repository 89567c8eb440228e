"""Opcodes of CPython 3.13 that differ from 3.12."""

from __future__ import annotations

import dis
from types import CellType, FunctionType

from ..frames import NULL
from ..opcodes import arithmetic
from ..opcodes.calls import finish_call, spread_call
from ..opcodes.containers import merge_keywords
from ..opcodes.handler_registry import op
from ..opcodes.stack import load_fast, put_result, store_fast
from . import cpython_312

__all__ = ["cpython_312"]


@op("COMPARE_OP", resolve=lambda arg, code: (arithmetic.COMPARE[dis.cmp_op[arg >> 5]], bool(arg & 16)))
def compare_op(m, f, arg):
    """Bit 16 asks for a bool: not needed, because the jump that follows tests the truth of the result anyway."""
    return arithmetic.binary_op(m, f, arg[0])


@op("TO_BOOL")
def to_bool(m, f, arg):
    return put_result(f, 1, m.truth(f.stack[-1]))


@op("LOAD_GLOBAL", resolve=lambda arg, code: (code.co.co_names[arg >> 1], arg & 1))
def load_global(m, f, arg):
    f.stack.append(m.load_global(f, arg[0]))
    if arg[1]:
        f.stack.append(NULL)


@op("LOAD_ATTR", resolve=lambda arg, code: (code.co.co_names[arg >> 1], arg & 1))
def load_attr(m, f, arg):
    """A method call has the NULL above the callable: also for a value that a pushed frame will return."""
    return put_callable(m, f, 1, m.load_attr(f.stack[-1], arg[0]), arg[1])


def put_callable(m, f, count: int, value, is_called: int) -> bool:
    is_pushed = put_result(f, count, value)
    if is_called and is_pushed:
        m.null_after_result()
    elif is_called:
        f.stack.append(NULL)
    return is_pushed


@op("LOAD_SUPER_ATTR", resolve=lambda arg, code: (code.co.co_names[arg >> 2], arg & 1, arg & 2))
def load_super_attr(m, f, arg):
    return put_callable(m, f, 3, m.load_attr(cpython_312.super_proxy(m, f, arg[2]), arg[0]), arg[1])


@op("CALL")
def call(m, f, arg):
    """``callable, NULL or self, args``."""
    total, names = arg
    return _call(m, f, total, names)


@op("CALL_KW")
def call_kw(m, f, arg):
    names = f.stack[-1]
    return _call(m, f, arg, names, 1)


def _call(m, f, total: int, names: tuple, above: int = 0):
    stack = f.stack
    top = len(stack) - above
    base = top - total - 2
    function, args = stack[base], stack[base + 2 : top]
    if stack[base + 1] is not NULL:
        args.insert(0, stack[base + 1])
    return finish_call(m, f, function, args, names, base)


@op("CALL_FUNCTION_EX")
def call_function_ex(m, f, arg):
    """``callable, NULL, args[, kwargs]``."""
    base = len(f.stack) - (3 + (arg & 1))
    return spread_call(m, f, f.stack[base], base, arg)


@op("DICT_MERGE")
def dict_merge(m, f, arg):
    """``callable, NULL or self, args, target`` end below ``arg`` values."""
    return merge_keywords(m, f, arg, f.stack[-arg - 4])


@op("MAKE_FUNCTION")
def make_function(m, f, arg):
    """The closure follows by SET_FUNCTION_ATTRIBUTE; until then the cells are empty."""
    co = f.stack[-1]
    empty = tuple([CellType() for _ in co.co_freevars])
    function = FunctionType(co, f.globals, co.co_name, None, empty or None)
    function.__qualname__ = co.co_qualname
    m.made(function)
    f.stack[-1] = function


@op("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(m, f, arg):
    value, function = f.stack[-2:]
    if arg == 8:
        # __closure__ is read-only from Python: a new function is made around the cells.
        made = FunctionType(function.__code__, f.globals, function.__name__, function.__defaults__, value)
        made.__qualname__, made.__kwdefaults__ = function.__qualname__, function.__kwdefaults__
        made.__annotations__ = function.__annotations__
        function = m.made(made)
    elif arg == 1:
        function.__defaults__ = value
    elif arg == 2:
        function.__kwdefaults__ = value
    elif arg == 4:
        function.__annotations__ = (
            dict(zip(value[::2], value[1::2], strict=True)) if isinstance(value, tuple) else value
        )
    f.stack[-2:] = [function]


@op("CONVERT_VALUE")
def convert_value(m, f, arg):
    return put_result(f, 1, m.format(f.stack[-1], (None, str, repr, ascii)[arg], ""))


@op("FORMAT_SIMPLE")
def format_simple(m, f, arg):
    return put_result(f, 1, m.format(f.stack[-1], None, ""))


@op("FORMAT_WITH_SPEC")
def format_with_spec(m, f, arg):
    return put_result(f, 2, m.format(f.stack[-2], None, f.stack[-1]))


def pair(arg: int, code) -> tuple[int, int]:
    return arg >> 4, arg & 15


@op("LOAD_FAST_LOAD_FAST", resolve=pair, reads_local=True)
def load_fast_load_fast(m, f, arg):
    load_fast(m, f, arg[0])
    load_fast(m, f, arg[1])


@op("STORE_FAST_STORE_FAST", resolve=pair, writes_local=True)
def store_fast_store_fast(m, f, arg):
    store_fast(m, f, arg[0])
    store_fast(m, f, arg[1])


@op("STORE_FAST_LOAD_FAST", resolve=pair)
def store_fast_load_fast(m, f, arg):
    store_fast(m, f, arg[0])
    f.stack.append(f.locals[arg[1]])
