"""Opcodes of CPython 3.12 that differ from 3.11."""

from __future__ import annotations

import builtins
import dis
import functools
import operator
from collections.abc import Callable
from types import FunctionType

from ..exception_context import stop_iteration_error
from ..frames import BY_CODE, NULL, PUSHED, UNBOUND
from ..opcodes import arithmetic
from ..opcodes.exceptions import combine_groups
from ..opcodes.handler_registry import op
from ..opcodes.stack import load_fast, put_result


@op("COMPARE_OP", resolve=lambda arg, code: arithmetic.COMPARE[dis.cmp_op[arg >> 4]])
def compare_op(m, f, arg):
    return arithmetic.binary_op(m, f, arg)


@op("LOAD_ATTR", resolve=lambda arg, code: (code.co.co_names[arg >> 1], arg & 1))
def load_attr(m, f, arg):
    """The low bit asks for a method: NULL below the bound method."""
    value = m.load_attr(f.stack[-1], arg[0])
    if arg[1]:
        f.stack.insert(-1, NULL)
    return put_result(f, 1, value)


@op("LOAD_SUPER_ATTR", resolve=lambda arg, code: (code.co.co_names[arg >> 2], arg & 1, arg & 2))
def load_super_attr(m, f, arg):
    value = m.load_attr(super_proxy(m, f, arg[2]), arg[0])
    if arg[1]:
        f.stack.insert(-3, NULL)
    return put_result(f, 3, value)


def super_proxy(m, f, has_arguments: int):
    """The low bits of LOAD_SUPER_ATTR: a method is wanted; super() was written with its two arguments."""
    function, cls, self = f.stack[-3:]
    proxy = m.call(function, (cls, self) if has_arguments or function is super else (), {})
    if proxy is PUSHED:
        m.frame = f  # plain Python calls it, in one step
        m.refuse_opcode("LOAD_SUPER_ATTR of a function named super")
    return proxy


op("LOAD_FAST_CHECK", reads_local=True)(load_fast)


@op("LOAD_FAST_AND_CLEAR", reads_local=True)
def load_fast_and_clear(m, f, arg):
    """An inlined comprehension saves the outer variable of the same name; it may be unbound."""
    f.stack.append(f.locals[arg])
    f.locals[arg] = UNBOUND


@op("CALL_INTRINSIC_1", resolve=lambda arg, code: (INTRINSIC_1[arg], arg))
def call_intrinsic_1(m, f, arg):
    name, number = arg
    value = f.stack[-1]
    if name == "UNARY_POSITIVE":
        value = m.unary(operator.pos, value)
        if value is PUSHED:
            f.stack.pop()
            return True
    elif name == "LIST_TO_TUPLE":
        value = m.to_tuple(value, None)
    elif name == "STOPITERATION_ERROR" and f.code.co in BY_CODE:
        pass  # the end of a builtin iterator
    elif name == "STOPITERATION_ERROR":
        value = stop_iteration_error(value)
    elif name in TYPE_PARAMETERS:
        value = m.made(_natively("CALL_INTRINSIC_1", number)(value))
    else:
        m.refuse_opcode(f"CALL_INTRINSIC_1 {name}")
    f.stack[-1] = value
    return None


@op("CALL_INTRINSIC_2", resolve=lambda arg, code: (INTRINSIC_2[arg], arg))
def call_intrinsic_2(m, f, arg):
    name, number = arg
    left, right = f.stack[-2:]
    if name == "PREP_RERAISE_STAR":
        value = combine_groups(left, right)
    else:
        value = m.made(_natively("CALL_INTRINSIC_2", number)(left, right))
    f.stack[-2:] = [value]


INTRINSIC_1 = """
    INVALID PRINT IMPORT_STAR STOPITERATION_ERROR ASYNC_GEN_WRAP UNARY_POSITIVE LIST_TO_TUPLE TYPEVAR PARAMSPEC
    TYPEVARTUPLE SUBSCRIPT_GENERIC TYPEALIAS
""".split()
INTRINSIC_2 = """
    INVALID PREP_RERAISE_STAR TYPEVAR_WITH_BOUND TYPEVAR_WITH_CONSTRAINTS SET_FUNCTION_TYPE_PARAMS SET_TYPEPARAM_DEFAULT
""".split()
TYPE_PARAMETERS = INTRINSIC_1[7:]


@functools.cache
def _natively(opname: str, number: int) -> Callable:
    """A function with only this instruction as its body, for results that Python source cannot express (a TypeVar with
    a lazy bound)."""
    count = int(opname[-1])
    body = [("RESUME", 0), *[("LOAD_FAST", i) for i in range(count)], (opname, number), ("RETURN_VALUE", 0)]
    text = bytes(byte for name, arg in body for byte in (dis.opmap[name], arg))
    template = _one if count == 1 else _two
    return FunctionType(template.__code__.replace(co_code=text, co_stacksize=2), {"__builtins__": builtins})


def _one(a):
    return a


def _two(a, b):
    return a


@op("CLEANUP_THROW")
def cleanup_throw(m, f, arg):
    """An exception thrown into a delegating generator came out as StopIteration: its value ends the delegation."""
    error = f.stack[-1]
    if not isinstance(error, StopIteration):
        m.raise_error(error, again=True)
    del f.stack[-3:]
    f.stack.extend([None, error.value])
