"""Frame introspection: callables that read the calling frame, such as ``super()``, ``locals()`` and ``eval()``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CellType
from typing import Any

from .frames import MISSING, UNBOUND, Frame, Raised, cell_value
from .versions.behavior import BEHAVIOR


def frame_locals(frame: Frame) -> dict[str, Any]:
    if frame.code.is_body:
        return frame.namespace  # type: ignore[return-value]
    values = {}
    for name, value in zip(frame.code.names, frame.locals, strict=True):
        if isinstance(value, CellType):
            value = cell_value(value)
        if value is not UNBOUND:
            values[name] = value
    return values


def namespace_of(frame: Frame) -> dict[str, Any]:
    """The result of ``locals()``: before Python 3.13, one dictionary per frame, updated each time."""
    values = frame_locals(frame)
    known = frame.namespace
    if BEHAVIOR.locals_returns_new_dictionary or known is None or known is values:
        frame.namespace = values
        return values
    for name in frame.code.names:
        known.pop(name, None)
    known.update(values)
    return known


def current_class(frame: Frame) -> Any:
    cell = frame.locals[frame.code.class_at]
    return cell_value(cell) if type(cell) is CellType else cell


def first_argument(frame: Frame) -> Any:
    value = frame.locals[0]
    return cell_value(value) if type(value) is CellType else value


def why_not_super(frame: Frame) -> str | None:
    """Why ``super()`` cannot find its class and object in a frame, in Python's words."""
    if not frame.code.co.co_argcount:
        return "no arguments"
    if first_argument(frame) is UNBOUND:
        return "arg[0] deleted"
    return None if frame.code.class_at >= 0 else "__class__ cell not found"


def _super(machine: Any, args: tuple, kwargs: dict) -> Any:
    if args:
        return MISSING
    frame = machine.frame
    why = why_not_super(frame)
    if why is not None:
        raise Raised(RuntimeError(f"super(): {why}"))
    return super(current_class(frame), first_argument(frame))


def _locals(machine: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if args or kwargs else namespace_of(machine.frame)


def _globals(machine: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if args or kwargs else machine.frame.globals


def _vars(machine: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if args or kwargs else namespace_of(machine.frame)


def _dir(machine: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if args else sorted(frame_locals(machine.frame))


def _evaluate(function: Callable) -> Callable:
    def stand_in(machine: Any, args: tuple, kwargs: dict) -> Any:
        if len(args) > 1 or kwargs:
            return MISSING
        return function(args[0], machine.frame.globals, frame_locals(machine.frame))

    return stand_in


def exc_info(machine: Any, args: tuple, kwargs: dict) -> Any:
    error = machine.handled()
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


FRAME_CALLS: dict[Any, Callable] = {
    super: _super,
    locals: _locals,
    globals: _globals,
    vars: _vars,
    dir: _dir,
    eval: _evaluate(eval),
    exec: _evaluate(exec),
    sys.exc_info: exc_info,
}
"""Functions that look at their caller's frame. Those that look at it for its line are added in ``python.messages``."""
