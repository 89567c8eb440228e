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

from ...concurrency.outside_errors import came_from_outside
from ...errors import OURS
from .bytecode_decoder import Position, position_of
from .decoded_code import Code


class Trail:
    """The interpreted frames that each propagating exception has passed, innermost first."""

    def __init__(self) -> None:
        self.passed: dict[int, tuple[BaseException, list[tuple[Code, int, dict, weakref.ref]]]] = {}
        self.native: dict[int, TracebackType | None] = {}
        self.has_met_interrupt = False

    def note(self, error: BaseException, frame: Any) -> None:
        entry = self.passed.get(id(error))
        if entry is None or entry[0] is not error:
            entry = self.passed[id(error)] = (error, [])
            self.native[id(error)] = _native_part(error.__traceback__)
            self.has_met_interrupt = self.has_met_interrupt or came_from_outside(error)
        here = (frame.code, frame.pc - 1, frame.globals, weakref.ref(frame))
        if not entry[1] or entry[1][-1][:2] != here[:2]:
            entry[1].append(here)

    def attach(self, error: BaseException) -> BaseException:
        """Give ``error``, which is handled or leaves the program, the traceback of the frames it has passed. The trail
        must not keep it alive then."""
        entry, made = self.passed.pop(id(error), None), self.native.pop(id(error), None)
        if entry is None or entry[0] is not error or os.environ.get("BURNISH_FULL_TRACEBACK"):
            return error
        for code, at, namespace, frame in entry[1]:
            if not code.co.co_filename.startswith(OURS):
                made = _stub(made, code.co, position_of(code, at), namespace)
                made.tb_frame.f_globals[SHOWN] = frame
        return error.with_traceback(made)

    def forget(self) -> None:
        self.passed.clear()
        self.native.clear()
        self.has_met_interrupt = False


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


Shown = tuple[CodeType, Position, dict]


def frames_of_user(traceback: TracebackType | None) -> tuple[Shown, ...]:
    """The frames in a traceback, innermost first, as data to rebuild a similar one on another run. Our own frames,
    which appear in the traceback of a running program, are left out."""
    shown = []
    while traceback is not None:
        frame, co = traceback.tb_frame, traceback.tb_frame.f_code
        if not co.co_filename.startswith(OURS):
            place = list(co.co_positions())[traceback.tb_lasti // 2]
            place = place if place[0] == traceback.tb_lineno else (traceback.tb_lineno, None, None, None)
            shown.append((co, place, {"__name__": frame.f_globals.get("__name__")}))
        traceback = traceback.tb_next
    return tuple(reversed(shown))


def traceback_of_frames(frames: tuple[Shown, ...]) -> TracebackType | None:
    made = None
    for co, place, namespace in frames:
        made = _stub(made, co, place, namespace)
    return made


def _stub(below: TracebackType | None, co: CodeType, place: Position, namespace: dict) -> TracebackType:
    making = _make_stub(below, co, place, namespace)
    made = next(making)
    made.tb_frame.f_globals["__burnish_stub__"] = making  # if it ended, its frame would keep its caller (Python 3.12)
    return made


def _make_stub(below: TracebackType | None, co: CodeType, place: Position, namespace: dict) -> Iterator[TracebackType]:
    """A generator, because its frame drops its caller when it yields: the traceback must not keep our frames alive, nor
    the objects that the program had when the error passed."""
    try:
        stub = _stub_code(co.co_filename, co.co_name, co.co_qualname, co.co_firstlineno, place)
        exec(stub, {"__name__": namespace.get("__name__"), "__burnish_stub__": _Stub})
    except _Stub as stop:
        made = stop.__traceback__
        assert made is not None
        while made.tb_next is not None:
            made = made.tb_next
        found = [TracebackType(below, made.tb_frame, made.tb_lasti, place[0] or co.co_firstlineno)]
    made = below = None  # the traceback holds this frame
    yield found.pop()


@functools.lru_cache(maxsize=512)
def _stub_code(filename: str, name: str, qualname: str, first: int, place: Position) -> CodeType:
    made = compile("raise __burnish_stub__", filename, "exec")
    table = _location_table(len(made.co_code) // 2, first, place)
    return made.replace(co_name=name, co_qualname=qualname, co_firstlineno=first, co_linetable=table)


def _location_table(units: int, first: int, place: Position) -> bytes:
    """``co_linetable`` of a code whose instructions are all at one place (Objects/locations.md in CPython)."""
    line, end, column, end_column = place
    line, table = line or first, bytearray()
    while units > 0:
        count = min(units, 8)
        kind = 13 if end is None or column is None or end_column is None else 14
        table.append(0x80 | kind << 3 | count - 1)
        table += _signed(line - first)
        if kind == 14:
            table += _unsigned(end - line) + _unsigned(column + 1) + _unsigned(end_column + 1)  # type: ignore[operator]
        units, first = units - count, line
    return bytes(table)


def _signed(number: int) -> bytes:
    return _unsigned(-number << 1 | 1 if number < 0 else number << 1)


def _unsigned(number: int) -> bytes:
    parts = bytearray()
    while number > 63:
        parts.append(number & 63 | 64)
        number >>= 6
    return bytes([*parts, number])


class _Stub(Exception):
    pass
