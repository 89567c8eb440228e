"""Builtins that look at the frame that calls them, while tracing: ``locals()``, ``exec()``, the handled error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .. import breaks
from ..interpreter.frame_introspection import exc_info, exception, module_name, namespace_of
from ..interpreter.frames import MISSING
from ..numbers.live_scalars import Expression
from . import evaluated_text


def _locals(m: Any, args: tuple, kwargs: dict) -> Any:
    return namespace_of(m.frame)


def _globals(m: Any, args: tuple, kwargs: dict) -> Any:
    if id(m.frame.globals) not in m.heap.fresh:
        m.heap.namespace(m.frame.globals)
    return m.frame.globals


def _dir(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.OPAQUE_CALL, "dir()")


def _module_name(m: Any, args: tuple, kwargs: dict) -> Any:
    name = module_name(m, args, kwargs)
    return m.stop(breaks.OPAQUE_FUNCTION, "it looks at the interpreter's frames") if name is MISSING else name


def _trace_function(m: Any, args: tuple, kwargs: dict) -> Any:
    """``sys.gettrace()``: programs ask whether they are debugged."""
    if args or kwargs or sys.gettrace() is not None:
        return MISSING
    asked = Expression(has_no_trace_function, (Expression(None, (m.heap.sources.pin(sys),)),))
    m.heap.guard("outcome", None, (asked, True))
    return None


def has_no_trace_function(module: Any) -> bool:
    return module.gettrace() is None


BUILTINS: dict[Any, Callable] = {
    locals: _locals,
    globals: _globals,
    eval: evaluated_text.evaluate,
    exec: evaluated_text.execute,
    compile: evaluated_text.compile_text,
    dir: _dir,
    sys.exc_info: exc_info,
    sys.exception: exception,
    sys.gettrace: _trace_function,
}
if hasattr(sys, "_getframemodulename"):  # from Python 3.12 on
    BUILTINS[sys._getframemodulename] = _module_name
