"""Opcodes of CPython 3.14 that differ from 3.13."""

from __future__ import annotations

import importlib
import operator
from typing import Any

from ..frames import NULL
from ..opcodes import arithmetic
from ..opcodes.calls import spread_call
from ..opcodes.exceptions import call_exit
from ..opcodes.handler_registry import op
from ..opcodes.stack import load_fast, nothing, pop_top
from . import cpython_313

# A borrowed reference matters to CPython's reference counts only.
op("LOAD_FAST_BORROW", reads_local=True)(load_fast)
op("LOAD_FAST_BORROW_LOAD_FAST_BORROW", resolve=cpython_313.pair, reads_local=True)(cpython_313.load_fast_load_fast)
op("NOT_TAKEN")(nothing)
op("POP_ITER")(pop_top)


@op("LOAD_SMALL_INT")
def load_small_int(m, f, arg):
    f.stack.append(arg)


COMMON_CONSTANTS = AssertionError, NotImplementedError, tuple, all, any


@op("LOAD_COMMON_CONSTANT", resolve=lambda arg, code: COMMON_CONSTANTS[arg])
def load_common_constant(m, f, arg):
    f.stack.append(arg)


@op("BINARY_OP", resolve=lambda arg, code: arithmetic.BINARY[arg])
def binary_op(m, f, arg):
    """``container[key]`` is one of the operators."""
    return arithmetic.binary_subscr(m, f, arg) if arg is operator.getitem else arithmetic.binary_op(m, f, arg)


SPECIAL_METHODS = "__enter__", "__exit__", "__aenter__", "__aexit__"


@op("LOAD_SPECIAL", resolve=lambda arg, code: SPECIAL_METHODS[arg])
def load_special(m, f, arg):
    """A bound method, and the NULL above it. ``with`` looks for ``__exit__`` first."""
    f.stack[-1:] = [m.special(f.stack[-1], arg), NULL]


@op("WITH_EXCEPT_START")
def with_except_start(m, f, arg):
    """Stack: exit, NULL, lasti, previous handled error, error."""
    return call_exit(m, f, f.stack[-5])


@op("CALL_FUNCTION_EX")
def call_function_ex(m, f, arg):
    """``callable, NULL, args, kwargs or NULL``."""
    base = len(f.stack) - 4
    return spread_call(m, f, f.stack[base], base, 1)


@op("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(m, f, arg):
    """Annotations are a function that computes them, from 3.14 on."""
    if arg == ANNOTATE:
        value, function = f.stack[-2:]
        function.__annotate__ = value
        f.stack[-2:] = [function]
        return
    cpython_313.set_function_attribute(m, f, arg)


ANNOTATE = 16


@op("BUILD_INTERPOLATION")
def build_interpolation(m, f, arg):
    """Bit 1 says that a format follows ``value, expression``; the bits above it are the conversion."""
    size = 2 + (arg & 1)
    value, expression, *form = f.stack[-size:]
    f.stack[-size:] = [m.made(_templatelib().Interpolation(value, expression, CONVERSIONS[arg >> 2], *form))]


CONVERSIONS = None, "s", "r", "a"


@op("BUILD_TEMPLATE")
def build_template(m, f, arg):
    """``texts, interpolations``: one text more than interpolations."""
    texts, interpolations = f.stack[-2:]
    parts = [part for pair in zip(texts, interpolations, strict=False) for part in pair]
    f.stack[-2:] = [m.made(_templatelib().Template(*parts, texts[-1]))]


def _templatelib() -> Any:
    return importlib.import_module("string.templatelib")
