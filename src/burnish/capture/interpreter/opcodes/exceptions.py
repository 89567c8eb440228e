"""Opcodes for exceptions and ``with``."""

from __future__ import annotations

from types import TracebackType

from ..frames import PUSHED, Raised
from ..versions.behavior import BEHAVIOR
from .handler_registry import op


@op("RAISE_VARARGS", falls_through=False)
def raise_varargs(m, f, arg):
    if arg == 0:
        error = m.handled()
        if error is None:
            raise Raised(RuntimeError("No active exception to reraise"))
        m.raise_error(error, again=True)
    cause = f.stack[-1] if arg == 2 else None
    pushed = m.raise_from(f.stack[-arg], cause, arg == 2)
    if pushed is PUSHED:
        # The exception class has a Python __init__: its instance replaces the class, then the raise runs again.
        return m.redo_with(f, -arg)
    return None


@op("RERAISE", falls_through=False)
def reraise(m, f, arg):
    error = f.stack[-1]
    m.raise_error(error, again=True)


@op("PUSH_EXC_INFO")
def push_exc_info(m, f, arg):
    error = f.stack.pop()
    f.stack.append(f.handling)
    f.stack.append(error)
    f.handling = error


@op("POP_EXCEPT")
def pop_except(m, f, arg):
    f.handling = f.stack.pop()


@op("CHECK_EXC_MATCH")
def check_exc_match(m, f, arg):
    error, kind = f.stack[-2:]
    check_kinds(kind)
    f.stack[-1] = isinstance(error, kind)


@op("CHECK_EG_MATCH")
def check_eg_match(m, f, arg):
    error, kind = f.stack[-2:]
    if any(issubclass(k, BaseExceptionGroup) for k in check_kinds(kind)):
        text = "catching ExceptionGroup with except* is not allowed. Use except instead."
        raise Raised(TypeError(text))
    if isinstance(error, BaseExceptionGroup):
        match, rest = error.split(kind)
    elif isinstance(error, kind):
        match, rest = BaseExceptionGroup("", (error,)), None
    else:
        match, rest = None, error
    f.stack[-2:] = [rest, match]
    if match is not None:
        f.handling = match


def check_kinds(kind) -> tuple:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds):
        raise Raised(TypeError("catching classes that do not inherit from BaseException is not allowed"))
    return kinds


@op("PREP_RERAISE_STAR")
def prep_reraise_star(m, f, arg):
    original, raised = f.stack[-2:]
    f.stack[-2:] = [combine_groups(original, raised)]


def combine_groups(original, raised: list):
    """The exception to raise after ``except*`` clauses ran: raised errors, and the unhandled part of the original."""
    left = [error for error in raised if error is not None]
    if not left or not isinstance(original, BaseExceptionGroup):
        return left[0] if left else None
    fresh = [e for e in left if not _is_part_of(e, original)]
    kept = {id(leaf) for e in left if _is_part_of(e, original) for leaf in _leaves(e)}
    if kept:
        fresh.append(original.subgroup(lambda e: id(e) in kept))
    return fresh[0] if len(fresh) == 1 else BaseExceptionGroup("", fresh)


def _is_part_of(error, group) -> bool:
    """Whether ``error`` was split off ``group`` and not raised by name since. CPython uses the same test."""
    fields = "__notes__", "__traceback__", "__cause__", "__context__"
    return isinstance(error, BaseExceptionGroup) and all(
        getattr(error, field, None) is getattr(group, field, None) for field in fields
    )


def _leaves(error) -> list:
    return [leaf for e in error.exceptions for leaf in _leaves(e)] if isinstance(error, BaseExceptionGroup) else [error]


def mark_as_raised(group) -> None:
    """Every ``raise`` of a group by name gives it a new traceback, unlike that of the group it was split off."""
    here = RAISED_AT
    group.__traceback__ = TracebackType(group.__traceback__, here.tb_frame, here.tb_lasti, here.tb_lineno)


try:
    raise ValueError
except ValueError as error:
    RAISED_AT = error.__traceback__  # within our files, so tracebacks shown to the user leave it out


@op("BEFORE_WITH")
def before_with(m, f, arg):
    """``__exit__`` is bound before ``__enter__`` is called, and is below its result on the stack."""
    manager = f.stack[-1]
    enter = m.special(manager, "__enter__")
    exit_ = m.special(manager, "__exit__")
    value = m.call(enter, (), {})
    f.stack[-1] = exit_
    if value is PUSHED:
        return True
    f.stack.append(value)
    return None


def why_no_context_manager(kind: type, name: str) -> str:
    missed = f" (missed {name} method)"
    protocol = "object does not support the context manager protocol"
    if not BEHAVIOR.has_detailed_errors:
        return f"'{kind.__name__}' {protocol}{missed if name == '__exit__' else ''}"
    module = kind.__module__
    is_qualified = isinstance(module, str) and module not in ("builtins", "__main__")
    text = f"'{f'{module}.' if is_qualified else ''}{kind.__qualname__}' {protocol}{missed}"
    if all(hasattr(kind, other) for other in ("__aenter__", "__aexit__")):
        return f"{text} but it supports the asynchronous context manager protocol. Did you mean to use 'async with'?"
    return text


@op("WITH_EXCEPT_START")
def with_except_start(m, f, arg):
    """Stack: exit, lasti, previous handled error, error."""
    return call_exit(m, f, f.stack[-4])


def call_exit(m, f, exit_):
    error = f.stack[-1]
    value = m.call(exit_, (type(error), error, error.__traceback__), {})
    if value is PUSHED:
        return True
    f.stack.append(value)
    return None
