"""``warnings.warn`` in interpreted code: a side effect at the location of the interpreted frame.

    def scaled(x, factor):
        if factor > 10:
            warnings.warn("that is a lot", stacklevel=2)      # about the line that called scaled()
        return x * factor

While tracing a warning is an effect: each run of the segment repeats it, about the same line. So the user's filters and
Python's "once per line" work as in eager code. If the level leads out of the compiled function, the line is looked up
on the stack then. ``builtin_functions`` and ``frame_introspection`` have the entries.
"""

from __future__ import annotations

import sys
import warnings
from types import BuiltinMethodType
from typing import Any

from ... import breaks
from ...engine.interpreted_or_native import OUR_PATH
from ...interpreter.emulated_frames import call_shown
from ...interpreter.frame_introspection import FRAME_CALLS
from ...interpreter.frames import Frame
from ...numbers.live_scalars import Live, plain_of
from ...segments.effects import Effect


def traced(m: Any, args: tuple, kwargs: dict) -> Any:
    """``warnings.warn(*args, **kwargs)`` under a tracer."""
    given = _arguments(args, kwargs)
    if given is None:
        return m.stop(breaks.OPAQUE_CALL, "warnings.warn with more than a message, a category and a level")
    if may_be_errors(warnings):
        return m.stop(breaks.OPAQUE_CALL, "warnings.warn where warnings may be errors")
    note_receiver(m, "warnings.warn")
    m.heap.guard_answer(may_be_errors, m.heap.sources.pin(warnings), answer=False)
    place = give, (*given[:2], *_place(m.frame, given[2]))
    if place[1][4] is not None:
        m.heap.namespace(place[1][4])  # the effect takes these very globals, whatever else is read from them
    effect = Effect.of(m, *place)
    if getattr(m.region, "delays_warnings", False) and _is_near(m.frame, given[2]):
        return m.region.delay(effect)
    m.effects.append(effect)
    return m.plainly(give, *place[1])


def plain(m: Any, args: tuple, kwargs: dict) -> Any:
    """The same in code that is interpreted but not traced."""
    given = _arguments(args, {name: value for name, value in kwargs.items() if name != "source"})
    if given is None:
        return call_shown(m, warnings.warn, args, kwargs)
    return give(*given[:2], *_place(m.frame, given[2]), kwargs.get("source"))


def may_be_errors(module: Any) -> bool:
    """Whether a filter turns warnings into errors: these must be raised at their place, under the user's handlers."""
    return any(entry[0] == "error" for entry in module.filters)


def are_only_shown(module: Any) -> bool:
    """Whether warnings are neither errors nor passed to a function of the program, which may read its state."""
    return not may_be_errors(module) and module.showwarning is module._showwarning_orig


def note_receiver(m: Any, what: str) -> None:
    """Before a warning of the segment, whose later runs give it at their end. Until then, the program must not read
    what receives it: neither the list of ``catch_warnings(record=True)`` nor a stream of its own."""
    if any(block._record for block in m.filters.values()):
        return  # the list was made here, by a block that guards the filters
    log = recorded(warnings)
    for module, name in ((warnings, "showwarning"), (warnings, "_showwarnmsg_impl"), (sys, "stderr")):
        if _is_rebound(m, module, name) and (module is warnings or log is None):
            m.stop(breaks.OPAQUE_CALL, f"{what} after a change of {module.__name__}.{name}")
    m.heap.guard_answer(records, m.heap.sources.pin(warnings), answer=log is not None)
    if log is None:
        return
    origin = m.heap.origin_of(log)
    if origin is not None and (origin.complete or origin.is_written):
        m.stop(breaks.OPAQUE_CALL, f"{what} where the list that records warnings has been used")
    shown = m.heap.sources.pin(vars(warnings)).item("_showwarnmsg_impl")
    m.heap.admit(log, shown.attr("__self__"))
    m.heap.received[id(log)] = log


def recorded(module: Any) -> list | None:
    """The list of ``catch_warnings(record=True)`` that receives warnings now."""
    shown = module._showwarnmsg_impl
    log = shown.__self__ if type(shown) is BuiltinMethodType and shown.__name__ == "append" else None
    return log if type(log) is list and module.showwarning is module._showwarning_orig else None


def records(module: Any) -> bool:
    return recorded(module) is not None


def _is_rebound(m: Any, module: Any, name: str) -> bool:
    """Whether the segment has replaced what a module has under this name, and has not put it back."""
    origin = m.heap.origins.get(id(vars(module)))
    if origin is None or name not in origin.written:
        return False
    before, now = origin.source.item(name), getattr(module, name, None)
    return not any(guard.source is before and guard.expected is now for guard in m.heap.guards)


def _arguments(args: tuple, kwargs: dict) -> tuple[Any, type, int] | None:
    """Message, category and level, if there are no other arguments."""
    found = dict(zip(("message", "category", "stacklevel"), args, strict=False)) | kwargs
    is_given_twice = len(found) < min(len(args), 3) + len(kwargs)
    if len(args) > 3 or is_given_twice or not found.keys() <= {"message", "category", "stacklevel"}:
        return None
    message, category, level = found.get("message"), found.get("category"), found.get("stacklevel", 1)
    if isinstance(message, Warning):
        category = type(message)
    elif not isinstance(message, str):
        return None
    category = UserWarning if category is None else category
    if isinstance(level, Live):
        level = level.settle()
    if not isinstance(category, type) or not issubclass(category, Warning) or type(level) is not int:
        return None
    return message, category, level


def _place(frame: Frame | None, level: int) -> tuple[str, int, dict | None, int]:
    """For the frame ``level`` calls up (1 is the current one): file, line and globals, and how far it is beyond the
    outermost."""
    assert frame is not None
    while level > 1 or frame.code.is_ours:
        level -= not frame.code.is_ours
        if frame.caller is None:
            return "", 0, None, max(1, level)
        frame = frame.caller
    return frame.code.co.co_filename, frame.line, frame.globals, 0


def _is_near(frame: Frame | None, level: int) -> bool:
    """Whether no native call is between the frame and the one ``level`` calls up."""
    while frame is not None and level > 1 and not frame.code.is_ours:
        level, frame = level - 1, frame.caller
    return frame is not None and not frame.code.is_ours


def give(
    message: Any, category: type, filename: str, line: int, namespace: dict | None, beyond: int, source: Any = None
) -> None:
    if namespace is None:
        filename, line, namespace = _caller(beyond)
    text = plain_of(message)
    registry = namespace.setdefault("__warningregistry__", {})
    module = namespace.get("__name__", "<string>")
    warnings.warn_explicit(text, category, filename, line, module, registry, source=source)


def compile_with_warnings(text: str, filename: str, mode: str, flags: int) -> Any:
    """The compiler knows no registry: it gives its warnings each time."""
    return compile(text, filename, mode, flags, True)


def _caller(level: int) -> tuple[str, int, dict]:
    """The ``level``-th frame on Python's stack outside Burnish. If there is none, the location that Python uses."""
    at = sys._getframe()
    while at is not None:
        level -= not at.f_code.co_filename.startswith((OUR_PATH, "<burnish"))
        if level <= 0:
            return at.f_code.co_filename, at.f_lineno, at.f_globals
        at = at.f_back  # type: ignore[assignment]
    return "sys", 1, sys.__dict__


FRAME_CALLS[warnings.warn] = plain
