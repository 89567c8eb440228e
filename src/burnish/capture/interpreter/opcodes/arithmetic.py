"""Opcodes for arithmetic, comparison and subscripts."""

from __future__ import annotations

import dis
import operator

from ..frames import PUSHED
from .handler_registry import op
from .stack import put_result

# In the order of CPython's NB_ constants; dis._nb_ops gives the symbols.
BY_SYMBOL = {
    "+": operator.add,
    "&": operator.and_,
    "//": operator.floordiv,
    "<<": operator.lshift,
    "@": operator.matmul,
    "*": operator.mul,
    "%": operator.mod,
    "|": operator.or_,
    "**": operator.pow,
    ">>": operator.rshift,
    "-": operator.sub,
    "/": operator.truediv,
    "^": operator.xor,
    "+=": operator.iadd,
    "&=": operator.iand,
    "//=": operator.ifloordiv,
    "<<=": operator.ilshift,
    "@=": operator.imatmul,
    "*=": operator.imul,
    "%=": operator.imod,
    "|=": operator.ior,
    "**=": operator.ipow,
    ">>=": operator.irshift,
    "-=": operator.isub,
    "/=": operator.itruediv,
    "^=": operator.ixor,
    "[]": operator.getitem,
}
BINARY = [BY_SYMBOL[symbol] for _, symbol in dis._nb_ops]  # type: ignore[attr-defined]
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


@op("BINARY_OP", resolve=lambda arg, code: BINARY[arg])
def binary_op(m, f, arg):
    left, right = f.stack[-2:]
    return put_result(f, 2, m.binary(arg, left, right))


@op("COMPARE_OP", resolve=lambda arg, code: COMPARE[dis.cmp_op[arg]])
def compare_op(m, f, arg):
    return binary_op(m, f, arg)


def _unary(name: str, function):
    @op(name)
    def handler(m, f, arg):
        return put_result(f, 1, m.unary(function, f.stack[-1]))

    return handler


_unary("UNARY_POSITIVE", operator.pos)
_unary("UNARY_NEGATIVE", operator.neg)
_unary("UNARY_INVERT", operator.invert)


@op("UNARY_NOT")
def unary_not(m, f, arg):
    value = m.truth(f.stack[-1])
    if value is PUSHED:
        f.stack.pop()
        return True
    f.stack[-1] = not value


@op("IS_OP")
def is_op(m, f, arg):
    left, right = f.stack[-2:]
    f.stack[-2:] = [m.same(left, right) != bool(arg)]


@op("CONTAINS_OP")
def contains_op(m, f, arg):
    item, container = f.stack[-2:]
    return put_result(f, 2, m.contains(container, item, bool(arg)))


@op("BINARY_SUBSCR")
def binary_subscr(m, f, arg):
    container, key = f.stack[-2:]
    return put_result(f, 2, m.subscript(container, key))


@op("STORE_SUBSCR")
def store_subscr(m, f, arg):
    value, container, key = f.stack[-3:]
    pushed = m.store_subscript(container, key, value)
    del f.stack[-3:]
    return pushed is PUSHED


@op("DELETE_SUBSCR")
def delete_subscr(m, f, arg):
    container, key = f.stack[-2:]
    pushed = m.delete_subscript(container, key)
    del f.stack[-2:]
    return pushed is PUSHED


@op("BINARY_SLICE")
def binary_slice(m, f, arg):
    container, start, stop = f.stack[-3:]
    return put_result(f, 3, m.subscript(container, slice(start, stop)))


@op("STORE_SLICE")
def store_slice(m, f, arg):
    value, container, start, stop = f.stack[-4:]
    pushed = m.store_subscript(container, slice(start, stop), value)
    del f.stack[-4:]
    return pushed is PUSHED
