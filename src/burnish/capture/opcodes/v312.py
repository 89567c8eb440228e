"""CPython 3.12: what differs from 3.11."""

from __future__ import annotations

import dis

from ..frames import NULL, PUSHED, UNBOUND
from . import operators
from .registry import op
from .stack import load_fast


@op("COMPARE_OP", resolve=lambda arg, code: operators.COMPARE[dis.cmp_op[arg >> 4]])
def compare_op(m, f, arg):
    return operators.binary_op(m, f, arg)


@op("LOAD_ATTR", resolve=lambda arg, code: (code.co.co_names[arg >> 1], arg & 1))
def load_attr(m, f, arg):
    """The low bit asks for a method: NULL below the bound method."""
    value = m.load_attr(f.stack[-1], arg[0])
    if arg[1]:
        f.stack[-1] = NULL
        if value is PUSHED:
            return True
        f.stack.append(value)
        return None
    if value is PUSHED:
        f.stack.pop()
        return True
    f.stack[-1] = value
    return None


@op("LOAD_SUPER_ATTR", resolve=lambda arg, code: (code.co.co_names[arg >> 2], arg & 1))
def load_super_attr(m, f, arg):
    function, cls, self = f.stack[-3:]
    proxy = m.make_super(function, cls, self)
    value = m.load_attr(proxy, arg[0])
    del f.stack[-3:]
    if arg[1]:
        f.stack.append(NULL)
    if value is PUSHED:
        return True
    f.stack.append(value)
    return None


op("LOAD_FAST_CHECK")(load_fast)


@op("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(m, f, arg):
    """An inlined comprehension saves the outer variable of the same name; it may be unbound."""
    f.stack.append(f.locals[arg])
    f.locals[arg] = UNBOUND


@op("CALL_INTRINSIC_1")
def call_intrinsic_1(m, f, arg):
    name = INTRINSIC_1[arg]
    value = f.stack[-1]
    if name == "UNARY_POSITIVE":
        value = m.unary(__import__("operator").pos, value)
        if value is PUSHED:
            f.stack.pop()
            return True
    elif name == "LIST_TO_TUPLE":
        value = tuple(value)
    elif name == "STOPITERATION_ERROR":
        value = m.stop_iteration_error(value)
    elif name == "TYPEVAR" or name in ("PARAMSPEC", "TYPEVARTUPLE", "SUBSCRIPT_GENERIC", "TYPEALIAS"):
        m.refuse_opcode(f"CALL_INTRINSIC_1 {name}")
    else:
        m.refuse_opcode(f"CALL_INTRINSIC_1 {name}")
    f.stack[-1] = value
    return None


@op("CALL_INTRINSIC_2")
def call_intrinsic_2(m, f, arg):
    if arg == 1:
        from .exceptions import combine_groups

        original, raised = f.stack[-2:]
        f.stack[-2:] = [combine_groups(original, raised)]
    else:
        m.refuse_opcode(f"CALL_INTRINSIC_2 {arg}")


INTRINSIC_1 = ("INVALID", "PRINT", "IMPORT_STAR", "STOPITERATION_ERROR", "ASYNC_GEN_WRAP", "UNARY_POSITIVE",
               "LIST_TO_TUPLE", "TYPEVAR", "PARAMSPEC", "TYPEVARTUPLE", "SUBSCRIPT_GENERIC", "TYPEALIAS")


@op("CLEANUP_THROW")
def cleanup_throw(m, f, arg):
    """An exception thrown into a delegating generator came out as StopIteration: its value ends the delegation."""
    error = f.stack[-1]
    if not isinstance(error, StopIteration):
        m.raise_error(error, again=True)
    del f.stack[-3:]
    f.stack.extend([None, error.value])
