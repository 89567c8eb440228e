"""Deferred OS signals: a signal's handler runs between two instructions of the traced program.

Python runs a handler wherever it happens to be, and under a trace that is mostly inside our code. An exception from the
handler, KeyboardInterrupt or the error of a time limit, would leave our step half done: a mode on, a lock taken. And
C++ that calls back into Python cannot always propagate an error: the process would end.

    with signals:                       # from here on, a signal is noted
        if signals.came:
            signals.answer(frame)       # its handler runs, and raises what it raises
        signals.at_once(compile, graph) # may take long, and can be interrupted anywhere

Only the main thread receives signals. In other threads this does nothing.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import torch

from ...concurrency.outside_errors import CALLERS, NUMBERS
from ..engine.interpreted_or_native import OUR_PATH

T = TypeVar("T")

# Entering or leaving ``torch.no_grad()`` must not be interrupted: half of it would leave the mode on.
SINGLE_STEPS = (torch.autograd.grad_mode.__file__, torch.amp.autocast_mode.__file__)


class CarriedHandlerError(BaseException):
    """Carries an error of a signal handler through a compiler, past its ``except Exception``."""

    def __init__(self, error: Exception):
        self.error = error


class Signals:
    def __init__(self) -> None:
        self.came: list[int] = []
        self.handlers: dict[int, Callable] = {}
        self.waits = self.passes = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.waits = True
        try:
            for number in NUMBERS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self.handlers[number] = handler
                    signal.signal(number, self.note)
        except BaseException:  # raised by a handler that still belongs to the program
            self.put_back()
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.end()
        if isinstance(error, CarriedHandlerError):  # the signal came just after the end of that call
            raise error.error from None
        self.answer()

    def end(self) -> None:
        try:
            self.put_back()
        finally:
            self.waits = self.passes = False

    def put_back(self) -> None:
        """Restore the program's handlers. A restored one may raise while others are still missing: these are restored
        too, and the error is raised at the end."""
        raised: BaseException | None = None
        missing = list(self.handlers)
        while missing:
            try:
                if signal.getsignal(missing[-1]) == self.note:  # the program may have set another one
                    signal.signal(missing[-1], self.handlers[missing[-1]])
                missing.pop()
            except BaseException as error:
                raised = error.error if isinstance(error, CarriedHandlerError) else error
        if raised is not None:
            raise raised

    def note(self, number: int, frame: FrameType | None) -> Any:
        if self.waits:
            self.came.append(number)
            return None
        try:
            return self.handlers[number](number, frame)
        except Exception as error:
            if self.passes:
                raise CarriedHandlerError(error) from None
            raise

    def answer(self, frame: Any = None) -> None:
        """Run the handlers of the pending signals. ``frame``: the interpreted frame, if there is one."""
        if frame is not None and not may_stop_at(frame):
            return
        while self.came:
            number = self.came.pop(0)
            self.handlers[number](number, sys._getframe(1))

    def at_once(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that may take long and may be interrupted anywhere."""
        waited = self.waits
        try:
            self.answer()
            self.waits, self.passes = False, True
            return function(*args)
        except CarriedHandlerError as passing:
            raise passing.error from None
        finally:
            self.passes, self.waits = False, waited


def may_stop_at(frame: Any) -> bool:
    """Whether an interruption before the next instruction of ``frame`` leaves nothing undone.

    CPython checks for signals after calls and at backward jumps. So it never does so between the end of a ``with``
    block and its ``__exit__``: three constants are loaded there, and nothing shows that the block has not been left
    yet.
    """
    code, at = frame.code, frame.pc
    if code.opnames[at] in ("LOAD_CONST", "PRECALL", "CALL"):
        return False
    if at and code.by_instruction[at] is not code.by_instruction[at - 1]:
        return False
    filename = code.co.co_filename
    return filename not in SINGLE_STEPS and not filename.startswith(OUR_PATH)  # ours replace native functions


def is_leaving_block(frame: Any) -> bool:
    """Whether ``frame`` is at a place that Python raises no error at, and where one would leave a block half done: a
    ``with`` block has ended, and its ``__exit__`` has not been called."""
    code, at = frame.code, frame.pc
    names, end = code.opnames, at
    if code.co.co_filename in SINGLE_STEPS:
        return True
    while names[end] in ("SWAP", "LOAD_CONST", "PRECALL"):
        end += 1
    if names[end] != "CALL" or code.instructions[end][1] != (2, ()):
        return False
    first = end - (names[end - 1] == "PRECALL") - 3
    return names[first : first + 3] == ["LOAD_CONST"] * 3 and at >= first - (names[first - 1] == "SWAP")


CALLERS += [Signals.note.__code__, Signals.answer.__code__]
