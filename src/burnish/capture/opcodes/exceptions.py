"""Raising, catching, ``with``."""

from __future__ import annotations

from ..frames import PUSHED, Raised
from .registry import op


@op("RAISE_VARARGS")
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


@op("RERAISE")
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
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds):
        raise Raised(TypeError("catching classes that do not inherit from BaseException is not allowed"))
    f.stack[-1] = isinstance(error, kind)


@op("CHECK_EG_MATCH")
def check_eg_match(m, f, arg):
    error, kind = f.stack[-2:]
    if isinstance(error, kind) and not isinstance(error, BaseExceptionGroup):
        match, rest = ExceptionGroup("", [error]), None
    elif isinstance(error, BaseExceptionGroup):
        match, rest = error.split(kind)
    else:
        match, rest = None, error
    f.stack[-2:] = [rest, match]
    if match is not None:
        f.handling = match


@op("PREP_RERAISE_STAR")
def prep_reraise_star(m, f, arg):
    original, raised = f.stack[-2:]
    f.stack[-2:] = [combine_groups(original, raised)]


def combine_groups(original, raised: list):
    """What is left to raise after ``except*`` clauses ran: raised errors, and the unhandled part of the original."""
    left = [error for error in raised if error is not None]
    if not left:
        return None
    if not isinstance(original, BaseExceptionGroup):
        return left[0]
    fresh = [e for e in left if not _is_part_of(e, original)]
    kept = [e for e in left if _is_part_of(e, original)]
    if not fresh:
        return kept[0] if len(kept) == 1 else original.subgroup(lambda e: any(_has(k, e) for k in kept))
    if not kept:
        return fresh[0] if len(fresh) == 1 else ExceptionGroup("", fresh)
    return ExceptionGroup("", fresh + kept)


def _has(group, error) -> bool:
    return error is group or (isinstance(group, BaseExceptionGroup) and any(_has(e, error) for e in group.exceptions))


def _is_part_of(error, group) -> bool:
    leaves = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
    return all(_has(group, leaf) or _is_part_of(leaf, group) if isinstance(leaf, BaseExceptionGroup)
               else _has(group, leaf) for leaf in leaves)


@op("BEFORE_WITH")
def before_with(m, f, arg):
    """``__exit__`` is bound first and lies below ``__enter__``'s result, as CPython leaves them."""
    manager = f.stack[-1]
    exit_ = m.special(manager, "__exit__")
    enter = m.special(manager, "__enter__")
    value = m.call(enter, (), {})
    f.stack[-1] = exit_
    if value is PUSHED:
        return True
    f.stack.append(value)
    return None


@op("WITH_EXCEPT_START")
def with_except_start(m, f, arg):
    """Stack: exit, lasti, previous handled error, error."""
    error = f.stack[-1]
    value = m.call(f.stack[-4], (type(error), error, error.__traceback__), {})
    if value is PUSHED:
        return True
    f.stack.append(value)
    return None
