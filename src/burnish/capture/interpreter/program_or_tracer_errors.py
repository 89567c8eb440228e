"""Tells errors of the user's program from errors of the tracer.

While a segment is traced, our code and the program's call each other. An exception is the program's in two cases:

* one of its instructions raised it. The interpreter carries such an error as `Raised`, so that it differs from others;
* a real call raised it that was made for the program: ``torch.mm(a, b)`` with sizes that do not fit. The place of that
  call marks it: ``m.program_error = error``.

Any other exception comes from our own code. It is a defect of ours, whatever its class is, and must be reported as one,
and not be taken for a break of the program. Where native code calls ours back (modes, functions given to torch.func),
`internal` makes an `InternalError` of it, because the native code's caller could not tell the two any more:

    program -> torch.vmap (native) -> our callback -> the program's function
                                      ^ here
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from ...concurrency.outside_errors import came_from_outside
from ...errors import InternalError


def call_for_program(m: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """A real call, whose error is the program's."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        m.program_error = error
        raise


def ask_torch(function: Callable, *args: Any) -> Any:
    """Call a Python function of torch on values of the program. Its errors are the program's, but if it does not take
    such arguments at all, the call is wrong, which is ours."""
    try:
        return function(*args)
    except Exception as error:
        at = error.__traceback__
        if at is None or at.tb_next is None:
            raise_internal_error("tracing", error)
        raise


def is_ours(m: Any, error: BaseException) -> bool:
    return isinstance(error, InternalError) or (isinstance(error, Exception) and error is not m.program_error)


def raise_internal_error(stage: str, error: BaseException) -> NoReturn:
    """Raise an internal error for this one. An error that stops the program from outside, such as that of a signal
    handler, stays as it is."""
    if isinstance(error, InternalError) or came_from_outside(error):
        raise error
    raise InternalError(stage, f"{type(error).__name__}: {error}") from error


def internal(function: Callable) -> Callable:
    """A method of ours that native code calls, or that is called where errors count as the program's. Its object has a
    `tracer`, or is it. Errors that are not marked as the program's are ours."""

    @functools.wraps(function)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except Exception as error:
            if is_ours(getattr(self, "tracer", self), error):
                raise_internal_error("tracing", error)
            raise

    return checked
