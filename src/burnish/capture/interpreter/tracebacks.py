"""Tracebacks: rebuilds the traceback of an exception to show the user's frames.

An exception that leaves interpreted code has passed our interpreter's Python frames, which mean nothing to the user,
and none of the user's, which never existed. While it unwinds, we record code and line of each interpreted frame. The
traceback is rebuilt from stub frames with the user's file, function and line, above the native part (such as the torch
function that raised).
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

from ...errors import OURS


class Trail:
    """The interpreted frames that each propagating exception has passed, innermost first."""

    def __init__(self) -> None:
        self.passed: dict[int, tuple[BaseException, list[tuple[CodeType, int, dict, weakref.ref]]]] = {}
        self.native: dict[int, TracebackType | None] = {}

    def note(self, error: BaseException, frame: Any) -> None:
        entry = self.passed.get(id(error))
        if entry is None or entry[0] is not error:
            entry = self.passed[id(error)] = (error, [])
            self.native[id(error)] = _native_part(error.__traceback__)
        here = (frame.code.co, frame.line, frame.globals, weakref.ref(frame))
        if not entry[1] or entry[1][-1][:2] != here[:2]:
            entry[1].append(here)

    def show(self, error: BaseException) -> BaseException:
        """Give ``error`` the traceback of the frames it has passed so far."""
        entry = self.passed.get(id(error))
        if entry is None or os.environ.get("BURNISH_FULL_TRACEBACK"):
            return error
        made = self.native.get(id(error))
        for co, line, namespace, frame in entry[1]:
            if not co.co_filename.startswith(OURS):
                made = _stub(made, co, line, namespace)
                made.tb_frame.f_globals[SHOWN] = frame
        return error.with_traceback(made)

    def attach(self, error: BaseException) -> BaseException:
        """Give ``error`` its final traceback when it leaves the program."""
        self.show(error)
        self.passed.pop(id(error), None)
        self.native.pop(id(error), None)
        return error

    def forget(self) -> None:
        self.passed.clear()
        self.native.clear()


class TrailOfKinds(Trail):
    """A trail that keeps the classes of the errors that it has seen, handled ones included."""

    def __init__(self, kinds: set[type[BaseException]]) -> None:
        super().__init__()
        self.kinds = kinds

    def note(self, error: BaseException, frame: Any) -> None:
        self.kinds.add(type(error))
        super().note(error, frame)


SHOWN = "__burnish_frame__"


def frame_shown_by(stub: FrameType) -> Any:
    """The interpreted frame that the stub of a traceback stands for. None if that frame is gone."""
    reference = stub.f_globals.get(SHOWN)
    return None if reference is None else reference()


def _native_part(traceback: TracebackType | None) -> TracebackType | None:
    """The part of a traceback below our own frames."""
    last_ours = None
    at = traceback
    while at is not None:
        if at.tb_frame.f_code.co_filename.startswith(OURS):
            last_ours = at
        at = at.tb_next
    return traceback if last_ours is None else last_ours.tb_next


def passed(traceback: TracebackType | None) -> tuple[tuple[CodeType, int, dict], ...]:
    """The frames in a traceback, innermost first, as data to rebuild a similar one on another run. Our own frames,
    which appear in the traceback of a running program, are left out."""
    shown = []
    while traceback is not None:
        frame = traceback.tb_frame
        if not frame.f_code.co_filename.startswith(OURS):
            shown.append((frame.f_code, traceback.tb_lineno, {"__name__": frame.f_globals.get("__name__")}))
        traceback = traceback.tb_next
    return tuple(reversed(shown))


def of_passed(frames: tuple[tuple[CodeType, int, dict], ...]) -> TracebackType | None:
    made = None
    for co, line, namespace in frames:
        made = _stub(made, co, line, namespace)
    return made


def _stub(below: TracebackType | None, co: CodeType, line: int, namespace: dict) -> TracebackType:
    making = _make_stub(below, co, line, namespace)
    made = next(making)
    made.tb_frame.f_globals["__burnish_stub__"] = making  # if it ended, its frame would keep its caller (Python 3.12)
    return made


def _make_stub(below: TracebackType | None, co: CodeType, line: int, namespace: dict) -> Iterator[TracebackType]:
    """A generator, because its frame drops its caller when it yields: the traceback must not keep our frames alive, nor
    the objects that the program had when the error passed."""
    try:
        stub = _stub_code(co.co_filename, co.co_name, co.co_qualname, line)
        exec(stub, {"__name__": namespace.get("__name__"), "__burnish_stub__": _Stub})
    except _Stub as stop:
        made = stop.__traceback__
        assert made is not None
        while made.tb_next is not None:
            made = made.tb_next
        found = [TracebackType(below, made.tb_frame, made.tb_lasti, line)]
    made = below = None  # the traceback holds this frame
    yield found.pop()


@functools.lru_cache(maxsize=512)
def _stub_code(filename: str, name: str, qualname: str, line: int) -> CodeType:
    made = compile("raise __burnish_stub__", filename, "exec")
    return made.replace(co_name=name, co_qualname=qualname, co_firstlineno=line)


class _Stub(Exception):
    pass
