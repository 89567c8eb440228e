"""Frame introspection: callables that read the calling frame, such as ``super()``, ``locals()`` and ``eval()``.

Also those that count weak references, without the ones that guards have.
"""

from __future__ import annotations
import __future__

import functools
import sys
import weakref
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

from ..guards.set_iteration_order import ByIdentity
from .frames import MISSING, UNBOUND, Frame, Raised, cell_value
from .versions.behavior import BEHAVIOR


def frame_locals(frame: Frame, load_cell: Callable[[CellType], Any] = cell_value) -> dict[str, Any]:
    """``load_cell``: reads a cell. A trace guards what one from outside holds."""
    if frame.code.is_body:
        return frame.namespace  # type: ignore[return-value]
    values = {}
    for name, value in zip(frame.code.names, frame.locals, strict=True):
        if type(value) is CellType and name in frame.code.cells:
            value = load_cell(value)
        if value is not UNBOUND:
            values[name] = value
    return values


def namespace_of(frame: Frame, load_cell: Callable[[CellType], Any] = cell_value) -> dict[str, Any]:
    """The result of ``locals()``: before Python 3.13, one dictionary per frame, updated each time."""
    values = frame_locals(frame, load_cell)
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
    return cell_value(value) if type(value) is CellType and frame.code.names[0] in frame.code.cells else value


def arguments_of_super(frame: Frame) -> tuple[Any, Any]:
    """The class and the object of ``super()``."""
    why = why_not_super(frame)
    if why is not None:
        raise Raised(RuntimeError(f"super(): {why}"))
    return current_class(frame), first_argument(frame)


def why_not_super(frame: Frame) -> str | None:
    """Why ``super()`` cannot find its class and object in a frame, in Python's words."""
    if not frame.code.co.co_argcount:
        return "no arguments"
    if first_argument(frame) is UNBOUND:
        return "arg[0] deleted"
    if frame.code.class_at < 0:
        return "__class__ cell not found"
    return None if current_class(frame) is not UNBOUND else "empty __class__ cell"


def _super(machine: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if args or kwargs else super(*arguments_of_super(machine.frame))


def _locals(machine: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if args or kwargs else namespace_of(machine.frame)


def _globals(machine: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if args or kwargs else machine.frame.globals


def _dir(machine: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if args else sorted(frame_locals(machine.frame))


FUTURES = functools.reduce(int.__or__, [getattr(__future__, n).compiler_flag for n in __future__.all_feature_names])


def inherited_flags(frame: Frame) -> int:
    """The features of ``__future__`` that a text inherits from the code that compiles it, which is the program's code
    and not ours."""
    return frame.code.co.co_flags & FUTURES


def _evaluate(function: Callable, mode: str) -> Callable:
    def stand_in(machine: Any, args: tuple, kwargs: dict) -> Any:
        source = args[0] if args else None
        if isinstance(source, (str, bytes)):
            source = source.lstrip(b" \t" if isinstance(source, bytes) else " \t") if mode == "eval" else source
            source = compile(source, "<string>", mode, inherited_flags(machine.frame), True)
        elif not args:
            return MISSING
        if len(args) > 1 or kwargs:
            return with_builtins_of(machine.frame, function, (source, *args[1:]), kwargs)
        return function(source, machine.frame.globals, frame_locals(machine.frame))

    return stand_in


def with_builtins_of(frame: Frame, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Call a function in C that takes the builtins of its caller where it is given globals without any."""
    return FunctionType(_call.__code__, {"__builtins__": frame.builtins})(function, args, kwargs)


def _call(function: Callable, args: tuple, kwargs: dict) -> Any:
    return function(*args, **kwargs)


def _function(machine: Any, args: tuple, kwargs: dict) -> Any:
    return with_builtins_of(machine.frame, FunctionType, args, kwargs)


def _compile(machine: Any, args: tuple, kwargs: dict) -> Any:
    by_place = dict(zip(("source", "filename", "mode", "flags", "dont_inherit"), args, strict=False))
    given = by_place | kwargs
    if (
        len(args) > 5
        or not by_place.keys().isdisjoint(kwargs)
        or given.get("dont_inherit")
        or not isinstance(given.get("flags", 0), int)
    ):
        return MISSING
    flags = given.get("flags", 0) | inherited_flags(machine.frame)
    return compile(**given | {"flags": flags, "dont_inherit": True})


def exc_info(machine: Any, args: tuple, kwargs: dict) -> Any:
    if args or kwargs:
        return MISSING
    error = machine.handled()
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def module_name(machine: Any, args: tuple, kwargs: dict) -> Any:
    """``sys._getframemodulename(depth)``, by which classes made in a function get their ``__module__``."""
    depth = args[0] if args else kwargs.get("depth", 0)
    if type(depth) is not int or len(args) + len(kwargs) > 1:
        return MISSING
    frame = machine.frame
    while frame is not None and (depth > 0 or frame.code.is_ours):
        depth -= not frame.code.is_ours
        frame = frame.caller
    return MISSING if frame is None else frame.globals.get("__name__")


def _weak_references(machine: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs:
        return MISSING
    return [reference for reference in weakref.getweakrefs(args[0]) if type(reference) is not ByIdentity]


def _count_weak_references(machine: Any, args: tuple, kwargs: dict) -> Any:
    found = _weak_references(machine, args, kwargs)
    return found if found is MISSING else len(found)


def exception(machine: Any, args: tuple, kwargs: dict) -> Any:
    return MISSING if args or kwargs else machine.handled()


FRAME_CALLS: dict[Any, Callable] = {
    super: _super,
    locals: _locals,
    globals: _globals,
    vars: _locals,
    dir: _dir,
    eval: _evaluate(eval, "eval"),
    exec: _evaluate(exec, "exec"),
    FunctionType: _function,
    weakref.getweakrefs: _weak_references,
    weakref.getweakrefcount: _count_weak_references,
    compile: _compile,
    sys.exc_info: exc_info,
    sys.exception: exception,
}
if hasattr(sys, "_getframemodulename"):  # from Python 3.12 on
    FRAME_CALLS[sys._getframemodulename] = module_name
"""Functions that look at their caller's frame. Those that look at it for its line are added in ``python.messages``."""
