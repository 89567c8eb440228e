"""Arguments to parameters, as CPython binds them."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from .bytecode import decode
from .frames import UNBOUND, Frame


def frame_for(function: FunctionType, values: list) -> Frame:
    """A frame at the start of ``function`` with its arguments bound to ``values`` (one per parameter)."""
    code = decode(function.__code__)
    values.extend([UNBOUND] * (code.n_locals - len(values)))
    return Frame(code, function.__globals__, function.__builtins__, values)  # type: ignore[attr-defined]


def bind(function: FunctionType, args: tuple, kwargs: dict) -> list:
    """Bind a call's arguments to ``function``'s parameters exactly as CPython does, with its error messages."""
    co = function.__code__
    n, kw_only, flags = co.co_argcount, co.co_kwonlyargcount, co.co_flags
    if not kwargs and not kw_only and not flags & 12 and len(args) == n:
        return list(args)
    names = co.co_varnames
    total, bound = n + kw_only, min(len(args), n)
    values = [*args[:n], *[UNBOUND] * (total - bound)]
    rest = args[n:]
    extra: dict[str, Any] = {}
    if kwargs:
        first_by_name = co.co_posonlyargcount
        for key, value in kwargs.items():
            try:
                at = names.index(key, first_by_name, total)
            except ValueError:
                if not flags & 8 or not isinstance(key, str):
                    raise _argument_error(function, args, kwargs) from None
                extra[key] = value
                continue
            if values[at] is not UNBOUND:
                raise _argument_error(function, args, kwargs)
            values[at] = value
            bound += 1
    if rest and not flags & 4:
        raise _argument_error(function, args, kwargs)
    if bound < total:
        defaults = function.__defaults__ or ()
        for i in range(n):
            if values[i] is UNBOUND:
                at = i - n + len(defaults)
                if at < 0:
                    raise _argument_error(function, args, kwargs)
                values[i] = defaults[at]
        by_name = function.__kwdefaults__ or {}
        for i in range(n, n + kw_only):
            if values[i] is UNBOUND:
                if names[i] not in by_name:
                    raise _argument_error(function, args, kwargs)
                values[i] = by_name[names[i]]
    if flags & 4:
        values.append(tuple(rest))
    if flags & 8:
        values.append(extra)
    return values


def _argument_error(function: FunctionType, args: tuple, kwargs: dict) -> TypeError:
    """CPython's own message, got by letting CPython bind the same arguments to an empty body."""
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
        co_argcount=co.co_argcount, co_posonlyargcount=co.co_posonlyargcount, co_kwonlyargcount=co.co_kwonlyargcount,
        co_nlocals=len(co.co_varnames[:_parameter_count(co)]), co_varnames=co.co_varnames[:_parameter_count(co)],
        co_flags=(body.co_flags & ~12) | (co.co_flags & 12), co_name=co.co_name, co_qualname=co.co_qualname)
    twin = FunctionType(made, {}, co.co_name, function.__defaults__)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__ = function.__qualname__
    return twin


def _parameter_count(co: CodeType) -> int:
    return co.co_argcount + co.co_kwonlyargcount + bool(co.co_flags & 4) + bool(co.co_flags & 8)


def _empty() -> None:
    return None
