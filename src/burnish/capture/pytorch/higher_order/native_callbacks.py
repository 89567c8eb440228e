"""Nested calls: native code calls a Python function back, and the function is interpreted inside that native call.

    torch.vmap(f)(x)        torch's own Python runs natively; it calls ``f``, whose bytecode the tracer interprets

The native frames between the two interpreted ones cannot be rebuilt later. So a graph break inside the function must
leave the native call as well: it does, because it is an exception. The caller then ends the segment before the native
call (`function_transforms`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ...interpreter.argument_binding import frame_for
from ...interpreter.frames import PUSHED, Frame, Raised
from ...interpreter.program_or_tracer_errors import raise_internal_error


def landing() -> None:
    """The code of the frame that receives the result of a nested call. It never runs."""


def landing_place() -> NoReturn:
    """The target of calls that stand for values of native code. No graph contains one."""
    raise AssertionError("a value of a native call is in a graph")


def call_nested(m: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Interpret a call that native code makes. An error that leaves it is raised as a plain exception, marked as the
    program's; any other exception is an `InternalError`."""
    try:
        return run_nested(m, function, args, kwargs)
    except Raised as raised:
        error = m.program_error = raised.error
    except Exception as failure:
        raise_internal_error("tracing", failure)
    try:
        raise error
    finally:
        del error


def run_nested(m: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Interpret a call to its end. Raises `Raised` if an error leaves it."""
    outer = m.frame
    base = frame_for(landing, [])
    base.caller, base.depth = outer, 0 if outer is None else outer.depth + 1
    m.frame = base
    try:
        value = m.call(function, args, kwargs)
        if value is PUSHED:
            run_until(m, base)
            value = base.stack.pop()
    except Raised:
        m.frame, m.answer, base.caller = outer, None, None
        raise
    m.frame, m.answer, base.caller = outer, None, None
    return value


def call_natively(function: Callable, *args: Any) -> Any:
    """A real call, which the interpreter makes for the program. Its errors are the program's."""
    try:
        return function(*args)
    except Exception as caught:
        error = caught
    try:
        raise Raised(error)
    finally:
        del error


def run_until(m: Any, base: Frame) -> None:
    """Run until all frames above ``base`` have returned. Raises `Raised` if none of them handles an error."""
    trouble: BaseException
    while m.frame is not base:
        try:
            frame = m.frame
            while True:
                handler, arg = frame.instructions[frame.pc]
                frame.pc += 1
                m.count += 1
                if handler(m, frame, arg):
                    frame = m.frame
                    m.answer = None
                    if frame is base:
                        return
        except Raised as raised:
            trouble = raised.error
        try:
            if not m.will_be_handled(trouble, base):
                raise Raised(trouble)
            m.unwind(trouble)
        finally:
            del trouble
