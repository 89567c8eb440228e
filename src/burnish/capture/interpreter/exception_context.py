"""Exception contexts: links exceptions that are raised while another one is handled, as CPython does.

The interpreter keeps the handled exception in its frames, where native code cannot find it. So the contexts of new
exceptions are set here. Native code that asks for the handled one (``logging.exception``) is called from an ``except``
block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def set_context(error: BaseException, handled: BaseException | None) -> None:
    """Set the context of ``error``, raised while ``handled`` is being handled."""
    if handled is None or handled is error:
        return
    for at in contexts_of(handled):
        if at.__context__ is error:
            at.__context__ = None
            break
    error.__context__ = handled


def extend_context(error: BaseException, handled: BaseException | None) -> None:
    """The same for an ``error`` from native code, which did not know ``handled``: it is added to the end."""
    if handled is None or handled is error:
        return
    chain = contexts_of(error)
    if not any(at is handled for at in chain) and not any(at is c for at in contexts_of(handled) for c in chain):
        chain[-1].__context__ = handled


def contexts_of(error: BaseException) -> list[BaseException]:
    """``error``, its context, the context of that, and so on."""
    chain = [error]
    while (before := chain[-1].__context__) is not None and not any(before is at for at in chain):
        chain.append(before)
    return chain


def call_while_handling(error: BaseException, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Call native code from an ``except`` block of the program, so that it finds ``error`` as the handled one."""
    traceback, context = error.__traceback__, error.__context__
    try:
        raise error
    except BaseException:
        error.__traceback__, error.__context__ = traceback, context
        return function(*args, **kwargs) if kwargs else function(*args)


def stop_iteration_error(error: BaseException) -> BaseException:
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("generator raised StopIteration")
    wrapped.__cause__ = wrapped.__context__ = error
    return wrapped
