"""Emulated frames: for functions that look at their callers, such as ``sys._getframe()`` and ``inspect.stack()``.

Interpreted functions have no Python frames. So such a call is made from inside emulated frames: each runs a line of
code with the name, the file and the line of the interpreted function, over its globals and variables.

    fn -> helper -> sys._getframe(1)        a frame "fn", in it one "helper", in it the call
"""

from __future__ import annotations

import datetime
import enum
import functools
import inspect
import itertools
import sys
import typing
from collections.abc import Callable
from sys import gettrace
from types import BuiltinMethodType, CodeType, FunctionType, MethodType
from typing import Any

from ...captured_graph.warnings_already_given import CALL, REGISTRY, note
from ...concurrency.outside_errors import came_from_outside
from .. import breaks
from ..engine.interpreted_or_native import PEEKERS, is_trusted
from .decoded_code import Code
from .frame_introspection import frame_locals
from .frames import Frame, frames_from
from .versions.behavior import BEHAVIOR

LOOKERS = frozenset(map(id, (sys._getframe, inspect.currentframe, inspect.stack)))
WARNING_CLOCKS = ("utcnow", "utcfromtimestamp") if BEHAVIOR.clocks_without_zone_warn else ()
"""Class methods of dates that are deprecated, which a warning says about the line that calls them."""
NAMED_AFTER_CALLERS = frozenset(
    getattr(typing, name, None)
    for name in "NewType TypeVar ParamSpec TypeVarTuple TypeAliasType NamedTuple TypedDict".split()
)
"""What makes an object whose ``__module__`` is that of the code that calls it."""
SHOWN = compile("[*'']", "", "exec")
"""Iterates over the object that replaces its constant. It looks up and binds no names."""


def call_shown(machine: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """``function(*args, **kwargs)``, called from emulations of the machine's frames."""
    answer: list[Any] = []
    call = functools.partial(function, *args, **kwargs)
    made: Any = map(answer.append, itertools.starmap(call, ((),)))  # all of it in C: no frame in between
    count = 0
    for frame in frames_from(machine.frame):
        if not frame.code.is_ours:
            code = looking_like(frame.code.co, frame.line, made)
            shown = functools.partial(exec, code, frame.globals, frame_locals(frame))
            made, count = itertools.starmap(shown, ((),)), count + 1
    trouble = None
    try:
        for _ in made:
            pass
    except BaseException as error:
        trouble = without(error, count + 1)
    if trouble is None:
        return answer.pop()
    try:
        raise trouble
    finally:
        del trouble  # its traceback holds this frame


def call_at_line(frame: Frame | None, function: Callable, args: tuple, kwargs: dict, known: dict | None = None) -> Any:
    """``function(*args, **kwargs)``, called from one emulated frame, which is enough for warnings: C code warns about
    the line that calls it, once for each line, and so does most of torch's Python. ``known`` receives the warnings."""
    while frame is not None and frame.code.is_ours:
        frame = frame.caller
    if frame is None:
        return CALL(function, args, kwargs)
    return call_at((frame.code, frame.line, frame.globals), function, args, kwargs, known)


def call_at(place: Place, function: Callable, args: tuple, kwargs: dict, known: dict | None = None) -> Any:
    if gettrace() is not None:
        return CALL(function, args, kwargs)  # a trace function would take the frame for a call of the program's
    code, line, namespace = place
    shown = code.at_lines.get(line)
    if shown is None:
        co = code.co
        names = {"co_name": co.co_name, "co_qualname": co.co_qualname, "co_filename": co.co_filename}
        shown = code.at_lines[line] = CALL.__code__.replace(co_firstlineno=line, **names)
    try:
        return FunctionType(shown, namespace)(function, args, kwargs)
    except BaseException as error:
        # One from outside may have come in the emulated frame itself, which then shows what it is.
        raise error if came_from_outside(error) else without(error, 2)  # noqa: B904  # it is the same error
    finally:
        if known is not None and REGISTRY in namespace:
            note(known, namespace[REGISTRY], line)


Place = tuple[Code, int, dict]
"""Code, line, and globals of a frame."""


def at_line(frame: Frame | None, function: Callable, known: dict | None) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        return call_at_line(frame, function, args, kwargs, known)

    call.__name__ = getattr(function, "__name__", "")
    return call


def looking_like(co: CodeType, line: int, iterator: Any) -> CodeType:
    constants = tuple(iterator if constant == "" else constant for constant in SHOWN.co_consts)
    return SHOWN.replace(
        co_name=co.co_name,
        co_qualname=co.co_qualname,
        co_filename=co.co_filename,
        co_firstlineno=line,
        co_consts=constants,
    )


def without(error: BaseException, count: int) -> BaseException:
    """An error without the outermost frames of its traceback: the interpreter adds those of the program itself."""
    traceback = _traceback_of(error)
    for _ in range(count):
        traceback = None if traceback is None else traceback.tb_next
    return BaseException.with_traceback(error, traceback)


_traceback_of: Callable = BaseException.__dict__["__traceback__"].__get__
"""Classes of the program may override this, and ``with_traceback``."""


def looks_at_frames(function: Any) -> bool:
    """Whether the function inspects its callers."""
    if type(function) is MethodType:
        function = function.__func__
    if type(function) is BuiltinMethodType and function.__name__ in WARNING_CLOCKS:
        return isinstance(function.__self__, type) and issubclass(function.__self__, datetime.datetime)
    return (
        id(function) in LOOKERS
        or type(function) is FunctionType
        and not PEEKERS.isdisjoint(function.__code__.co_names)
        and not is_trusted(function.__globals__.get("__name__"))
    )


def makes_class_of_caller(function: Any, args: tuple) -> bool:
    """Whether the call makes a class or a type, which is named after the module that it is called from."""
    if issubclass(type(function), type):
        return (
            issubclass(function, type)
            and len(args) == 3
            or function in NAMED_AFTER_CALLERS
            or isinstance(function, enum.EnumMeta)
            and len(args) > 1
        )
    return type(function) is FunctionType and (
        function in NAMED_AFTER_CALLERS or "_caller" in function.__code__.co_names
    )


def _stop(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.OPAQUE_FUNCTION, "it looks at the interpreter's frames")


HANDLERS: dict[Any, Callable] = {inspect.currentframe: _stop, inspect.stack: _stop}
