"""Logging calls in interpreted code: side effects with the file and line of the interpreted frame.

    logger.warning("%d tokens are too many", n)      # model.py:12 in forward WARNING 4096 tokens are too many

While tracing such a call is an effect: its arguments are recorded as they are at that moment, and the logger decides
again on every run. `logging` finds file, line and function on Python's stack, so it is called by code that has those of
the user's frame. The handled error, needed for `exc_info`, is found in advance.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from logging import Logger
from types import CodeType
from typing import Any

from ...interpreter.frame_introspection import FRAME_CALLS
from ...interpreter.frames import Frame
from ...numbers.live_scalars import plain_of, without_live
from ...segments.effects import Effect

NAMES = ("debug", "info", "warning", "error", "critical", "exception", "log")
OF_LOGGING = logging.__file__

Place = tuple[CodeType, str]
"""A line of the program as executable code, and the name of its module."""


def traced(name: str, m: Any, args: tuple, kwargs: dict) -> None:
    """``Logger.name(*args, **kwargs)`` under a tracer."""
    give, kwargs = LoggerCall(name, places(m.frame, kwargs.get("stacklevel", 1))), with_error(m, name, kwargs)
    m.effects.append(Effect.of(m, give, args, kwargs))
    m.plainly(give, *map(without_live, args), **kwargs)


def plain(name: str, m: Any, args: tuple, kwargs: dict) -> None:
    """The same in code that is interpreted but not traced."""
    LoggerCall(name, places(m.frame, kwargs.get("stacklevel", 1)))(*args, **with_error(m, name, kwargs))


def with_error(m: Any, name: str, kwargs: dict) -> dict:
    if kwargs.get("exc_info", name == "exception") not in (True, 1):
        return kwargs
    return {**kwargs, "exc_info": m.handled() or (None, None, None)}


def places(frame: Frame | None, level: Any) -> tuple[Place, ...]:
    """The places of the program's innermost frame and of its callers, as many as ``stacklevel`` says."""
    found: list[Place] = []
    while frame is not None and type(level) is int and len(found) < max(1, level):
        co = frame.code.co
        if not frame.code.is_ours and co.co_filename != OF_LOGGING:
            found.append((_line(co, frame.line, not found), frame.globals.get("__name__", "")))
        frame = frame.caller
    return tuple(found)


@functools.lru_cache(maxsize=512)
def _line(co: CodeType, line: int, calls: bool) -> CodeType:
    made = compile("call()" if calls else "exec(code, names)", co.co_filename, "exec")
    return made.replace(co_name=co.co_name, co_qualname=co.co_qualname, co_firstlineno=line)


@dataclass(slots=True, frozen=True, eq=False)
class LoggerCall:
    """A logger method, called from lines of the program. The innermost line makes the call."""

    name: str
    at: tuple[Place, ...]

    def __call__(self, logger: Logger, *args: Any, **kwargs: Any) -> None:
        call: Callable = functools.partial(getattr(logger, self.name), *map(plain_of, args), **kwargs)
        if not self.at:
            return call()
        (code, module), *callers = self.at
        names: dict[str, Any] = {"call": call, "__name__": module}
        for caller, module in callers:
            code, names = caller, {"exec": exec, "code": code, "names": names, "__name__": module}
        exec(code, names)


FRAME_CALLS.update((getattr(Logger, name), functools.partial(plain, name)) for name in NAMES)
