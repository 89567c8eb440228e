"""Opcodes that only move values: constants, locals, the stack itself."""

from __future__ import annotations

from ..frames import NULL, PUSHED, UNBOUND, Raised
from .handler_registry import constant, op


@op(
    "NOP",
    "RESUME",
    "PRECALL",
    "CACHE",
    "KW_NAMES",
    "EXTENDED_ARG",
    "COPY_FREE_VARS",
    "INTERPRETER_EXIT",
    "EXIT_INIT_CHECK",
)
def nothing(m, f, arg):
    """Includes COPY_FREE_VARS, because a frame gets its free variables when it is made."""


@op("POP_TOP", "END_FOR")
def pop_top(m, f, arg):
    f.stack.pop()


@op("PUSH_NULL")
def push_null(m, f, arg):
    f.stack.append(NULL)


@op("LOAD_CONST", resolve=constant)
def load_const(m, f, arg):
    f.stack.append(arg)


@op("LOAD_FAST", reads_local=True)
def load_fast(m, f, arg):
    value = f.locals[arg]
    if value is UNBOUND:
        raise Raised(unbound_local(f, arg))
    f.stack.append(value)


@op("STORE_FAST", writes_local=True)
def store_fast(m, f, arg):
    f.locals[arg] = f.stack.pop()


@op("DELETE_FAST", reads_local=True)
def delete_fast(m, f, arg):
    if f.locals[arg] is UNBOUND:
        raise Raised(unbound_local(f, arg))
    f.locals[arg] = UNBOUND


@op("SWAP")
def swap(m, f, arg):
    stack = f.stack
    stack[-1], stack[-arg] = stack[-arg], stack[-1]


@op("COPY")
def copy(m, f, arg):
    f.stack.append(f.stack[-arg])


def put_result(frame, count: int, value) -> bool:
    """Replace the last ``count`` values, the operands, by the result. True if a pushed frame will return it."""
    del frame.stack[-count:]
    if value is PUSHED:
        return True
    frame.stack.append(value)
    return False


def unbound_local(frame, at: int) -> UnboundLocalError:
    name = frame.code.names[at]
    text = f"cannot access local variable '{name}' where it is not associated with a value"
    return UnboundLocalError(text)
