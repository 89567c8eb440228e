"""Opcodes that read or write names: globals, closure cells, attributes, imports."""

from __future__ import annotations

from types import CellType

from ..frames import NULL, PUSHED, UNBOUND, Raised, cell_value
from .handler_registry import name, op
from .stack import put_result, unbound_local


@op("LOAD_GLOBAL", resolve=lambda arg, code: (code.co.co_names[arg >> 1], arg & 1))
def load_global(m, f, arg):
    value = m.load_global(f, arg[0])
    if arg[1]:
        f.stack.append(NULL)
    f.stack.append(value)


@op("STORE_GLOBAL", resolve=name)
def store_global(m, f, arg):
    m.store_global(f, arg, f.stack[-1])
    f.stack.pop()


@op("DELETE_GLOBAL", resolve=name)
def delete_global(m, f, arg):
    m.delete_global(f, arg)


@op("MAKE_CELL")
def make_cell(m, f, arg):
    value = f.locals[arg]
    f.locals[arg] = m.new_cell(value)


@op("LOAD_CLOSURE", reads_local=True)
def load_closure(m, f, arg):
    f.stack.append(f.locals[arg])


@op("LOAD_DEREF")
def load_deref(m, f, arg):
    value = m.load_cell(f.locals[arg])
    if value is UNBOUND:
        raise Raised(unbound_cell(f, arg))
    f.stack.append(value)


@op("STORE_DEREF")
def store_deref(m, f, arg):
    cell = f.locals[arg]
    if not isinstance(cell, CellType):  # a frame rebuilt before its MAKE_CELL ran keeps the bare value
        cell = f.locals[arg] = m.new_cell(cell)
    m.store_cell(cell, f.stack[-1])
    f.stack.pop()


@op("DELETE_DEREF")
def delete_deref(m, f, arg):
    cell = f.locals[arg]
    if cell_value(cell) is UNBOUND:
        raise Raised(unbound_cell(f, arg))
    m.store_cell(cell, UNBOUND)


def unbound_cell(frame, at: int) -> NameError:
    name_ = frame.code.names[at]
    if name_ in frame.code.co.co_freevars:
        text = f"cannot access free variable '{name_}' where it is not associated with a value in enclosing scope"
        return NameError(text)
    return unbound_local(frame, at)


@op("LOAD_ATTR", resolve=name)
def load_attr(m, f, arg):
    return put_result(f, 1, m.load_attr(f.stack[-1], arg))


@op("LOAD_METHOD", resolve=name)
def load_method(m, f, arg):
    """NULL below the bound method: the machine binds; it never needs the unbound form."""
    value = m.load_attr(f.stack[-1], arg)
    f.stack.insert(-1, NULL)
    return put_result(f, 1, value)


@op("STORE_ATTR", resolve=name)
def store_attr(m, f, arg):
    value, obj = f.stack[-2:]
    pushed = m.store_attr(obj, arg, value)
    del f.stack[-2:]
    return pushed is PUSHED


@op("DELETE_ATTR", resolve=name)
def delete_attr(m, f, arg):
    pushed = m.delete_attr(f.stack[-1], arg)
    f.stack.pop()
    return pushed is PUSHED


@op("IMPORT_NAME", resolve=name)
def import_name(m, f, arg):
    level, names = f.stack[-2:]
    module = m.import_name(f, arg, level, names)
    f.stack[-2:] = [module]


@op("IMPORT_FROM", resolve=name)
def import_from(m, f, arg):
    f.stack.append(m.import_from(f.stack[-1], arg))


@op("LOAD_ASSERTION_ERROR")
def load_assertion_error(m, f, arg):
    f.stack.append(AssertionError)


@op("LOAD_BUILD_CLASS")
def load_build_class(m, f, arg):
    f.stack.append(m.load_builtin_unasked(f, "__build_class__", NameError))
