"""Argument binding: a call's arguments to a function's parameters, as in CPython."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import NamedTuple

from .bytecode_decoder import decode
from .frames import UNBOUND, Frame


def frame_for(function: FunctionType, values: list) -> Frame:
    """A frame at the start of ``function`` with its arguments bound to ``values`` (one per parameter)."""
    code = decode(function.__code__)
    values.extend([UNBOUND] * (code.n_locals - len(values)))
    return Frame(code, function.__globals__, function.__builtins__, values)  # type: ignore[attr-defined]


class BindingPlan(NamedTuple):
    """How arguments of one shape (this many positional, these keywords) become the values of a code's parameters."""

    co: CodeType  # kept alive, because plans are looked up by its address
    places: list[int]  # for each parameter: the index of its argument, positional ones first; -1 where there is none
    by_position: list[tuple[int, int]]  # parameters without an argument: which, and which default from the end
    by_name: list[tuple[int, str]]  # the same for keyword-only parameters
    rest: int | None  # the first of the arguments that ``*`` takes
    extra: list[int] | None  # which of the keyword arguments ``**`` takes


_plans: dict[tuple, BindingPlan | None] = {}


def bind(function: FunctionType, args: tuple, kwargs: dict) -> list:
    """Bind a call's arguments to ``function``'s parameters exactly as CPython does, with its error messages."""
    co = function.__code__
    if not kwargs and not co.co_kwonlyargcount and not co.co_flags & 12 and len(args) == co.co_argcount:
        return list(args)
    key = (id(co), len(args), *kwargs)
    plan = _plans.get(key)
    if plan is None or plan.co is not co:
        if len(_plans) > 10_000:
            _plans.clear()
        plan = _plans[key] = plan_for(co, len(args), tuple(kwargs))
        if plan is None:
            raise _argument_error(function, args, kwargs)
    given = (*args, *kwargs.values()) if kwargs else args
    values = [given[at] if at >= 0 else UNBOUND for at in plan.places]
    if plan.by_position:
        defaults = function.__defaults__ or ()
        for i, back in plan.by_position:
            if back > len(defaults):
                raise _argument_error(function, args, kwargs)
            values[i] = defaults[-back]
    if plan.by_name:
        named = function.__kwdefaults__ or {}
        for i, name in plan.by_name:
            if name not in named:
                raise _argument_error(function, args, kwargs)
            values[i] = named[name]
    if plan.rest is not None:
        values.append(args[plan.rest :])
    if plan.extra is not None:
        items = list(kwargs.items())
        values.append(dict([items[at] for at in plan.extra]))
    return values


def plan_for(co: CodeType, count: int, keywords: tuple) -> BindingPlan | None:
    """None where such arguments are an error, independently of the defaults."""
    n, flags, names = co.co_argcount, co.co_flags, co.co_varnames
    total = n + co.co_kwonlyargcount
    places = [*range(min(count, n)), *[-1] * (total - min(count, n))]
    extra: list[int] = []
    for at, keyword in enumerate(keywords):
        if keyword in names[co.co_posonlyargcount : total]:
            i = names.index(keyword, co.co_posonlyargcount, total)
            if places[i] >= 0:
                return None
            places[i] = count + at
        elif flags & 8 and isinstance(keyword, str):
            extra.append(at)
        else:
            return None
    if count > n and not flags & 4:
        return None
    return BindingPlan(
        co,
        places,
        [(i, n - i) for i in range(n) if places[i] < 0],
        [(i, names[i]) for i in range(n, total) if places[i] < 0],
        n if flags & 4 else None,
        extra if flags & 8 else None,
    )


def _argument_error(function: FunctionType, args: tuple, kwargs: dict) -> TypeError:
    """CPython's own message, obtained by binding the same arguments to an empty body."""
    try:
        empty_twin(function)(*args, **kwargs)
    except TypeError as error:
        return error.with_traceback(None)
    return TypeError(f"{function.__qualname__}() got arguments that do not fit")


def empty_twin(function: FunctionType) -> FunctionType:
    """A function with the same signature and name that does nothing."""
    co = function.__code__
    body = _empty.__code__
    made: CodeType = body.replace(
        co_argcount=co.co_argcount,
        co_posonlyargcount=co.co_posonlyargcount,
        co_kwonlyargcount=co.co_kwonlyargcount,
        co_nlocals=len(co.co_varnames[: _parameter_count(co)]),
        co_varnames=co.co_varnames[: _parameter_count(co)],
        co_flags=(body.co_flags & ~12) | (co.co_flags & 12),
        co_name=co.co_name,
        co_qualname=co.co_qualname,
    )
    twin = FunctionType(made, {}, co.co_name, function.__defaults__)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__ = function.__qualname__
    return twin


def _parameter_count(co: CodeType) -> int:
    return co.co_argcount + co.co_kwonlyargcount + bool(co.co_flags & 4) + bool(co.co_flags & 8)


def _empty() -> None:
    return None
