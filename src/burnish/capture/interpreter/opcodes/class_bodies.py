"""Opcodes of class bodies: names in the namespace of the class, before those around it.

    class Point:
        origin = 0              STORE_NAME
        corners = origin + 1    LOAD_NAME: the namespace, then globals and builtins

The namespace is a dictionary that the class statement has made: ``frame.namespace``.
"""

from __future__ import annotations

from ..frames import MISSING
from .handler_registry import name, op
from .names_and_attributes import load_deref


@op("LOAD_NAME", resolve=name)
def load_name(m, f, arg):
    value = m.load_name(f.namespace, arg)
    f.stack.append(m.load_global(f, arg) if value is MISSING else value)


@op("STORE_NAME", resolve=name)
def store_name(m, f, arg):
    m.store_name(f, arg, f.stack[-1])
    f.stack.pop()


@op("DELETE_NAME", resolve=name)
def delete_name(m, f, arg):
    m.delete_name(f, arg)


@op("SETUP_ANNOTATIONS")
def setup_annotations(m, f, arg):
    if m.load_name(f.namespace, "__annotations__") is MISSING:
        m.store_name(f, "__annotations__", {})


@op("LOAD_LOCALS")
def load_locals(m, f, arg):
    f.stack.append(f.namespace)


@op("LOAD_FROM_DICT_OR_GLOBALS", resolve=name)
def load_from_dict_or_globals(m, f, arg):
    value = load_from_namespace(m, f, arg)
    f.stack[-1] = m.load_global(f, arg) if value is MISSING else value


def load_from_namespace(m, f, name_: str):
    """A name in the namespace on top of the stack: that of the class body, or around type parameters and functions
    that compute annotations, which are frames of their own, what the body has left."""
    if f.namespace is None and type(f.stack[-1]) is not dict:
        m.leave_to_python("LOAD_FROM_DICT of a namespace that is not a dictionary")
        try:
            return f.stack[-1][name_]
        except KeyError:
            return MISSING
    return m.load_name(f.stack[-1], name_)


@op("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(m, f, arg):
    value = load_from_namespace(m, f, f.code.names[arg])
    if value is not MISSING:
        f.stack[-1] = value
        return
    f.stack.pop()
    load_deref(m, f, arg)


@op("LOAD_CLASSDEREF")
def load_classderef(m, f, arg):
    f.stack.append(f.namespace)
    load_from_dict_or_deref(m, f, arg)
