"""What CPython's thread state does to exceptions while another one is being handled.

The interpreter keeps the handled exception in its frames, where native code does not see it: contexts of new exceptions
are set here, and native code that asks for the handled exception (``logging.exception``) is called so that it finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def set_context(error: BaseException, handled: BaseException | None) -> None:
    """What raising ``error`` while ``handled`` is being handled does to its context."""
    if handled is None or handled is error:
        return
    for at in contexts_of(handled):
        if at.__context__ is error:
            at.__context__ = None
            break
    error.__context__ = handled


def extend_context(error: BaseException, handled: BaseException | None) -> None:
    """Native code raised ``error`` and did not know what is being handled: that comes at the end of its chain."""
    if handled is None or handled is error:
        return
    chain = contexts_of(error)
    if not any(at is handled for at in chain) and not any(at is c for at in contexts_of(handled) for c in chain):
        chain[-1].__context__ = handled


def contexts_of(error: BaseException) -> list[BaseException]:
    """``error``, its context, that one's context ..."""
    chain = [error]
    while (before := chain[-1].__context__) is not None and not any(before is at for at in chain):
        chain.append(before)
    return chain


def call_while_handling(error: BaseException, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Call native code in an ``except`` block of the program: it sees ``error`` as the one being handled."""
    traceback, context = error.__traceback__, error.__context__
    try:
        raise error
    except BaseException:
        error.__traceback__, error.__context__ = traceback, context
        return function(*args, **kwargs)
