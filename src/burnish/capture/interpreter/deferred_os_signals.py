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

import functools
import opcode
import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, TypeVar

import torch

from ..engine.interpreted_or_native import OUR_PATH

T = TypeVar("T")

# Signals that programs have handlers for. The others stop, continue or kill a process, or report a crash.
NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF", "SIGBREAK")
NUMBERS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
BARE_ERRORS = (MemoryError, StopIteration, StopAsyncIteration, GeneratorExit)
"""C code raises these without arguments."""
# Entering or leaving ``torch.no_grad()`` must not be interrupted: half of it would leave the mode on.
SINGLE_STEPS = (torch.autograd.grad_mode.__file__, torch.amp.autocast_mode.__file__)


class Passing(BaseException):
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
        try:
            self.put_back()
        finally:
            self.waits = self.passes = False
        if isinstance(error, Passing):  # the signal came just after the call that it was to pass through had ended
            raise error.error from None
        self.answer()

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
                raised = error.error if isinstance(error, Passing) else error
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
                raise Passing(error) from None
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
        except Passing as passing:
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


def raised(error: BaseException | None) -> bool:
    """Whether ``error`` was raised to stop the program from outside, not by something the program did."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)) or is_asynchronous(error):
        return True
    handlers = [
        Signals.note.__code__,
        Signals.answer.__code__,
        *(code_of(signal.getsignal(number)) for number in NUMBERS),
    ]
    at = None if error is None else error.__traceback__
    while at is not None and at.tb_frame.f_code not in handlers:
        at = at.tb_next
    return at is not None


def is_asynchronous(error: BaseException | None) -> bool:
    """Whether another thread raised ``error`` in this one (``PyThreadState_SetAsyncExc``). Python instantiates its
    class without arguments, at the start of a function, at a backward jump or where a call returns. An error of C code
    has arguments, with a few exceptions; an error of Python code has its ``raise``."""
    at = None if error is None else error.__traceback__
    if at is None or error is None or error.args or error.__cause__ is not None:
        return False
    while at.tb_next is not None:
        at = at.tb_next
    name = opcode.opname[at.tb_frame.f_code.co_code[at.tb_lasti]]
    if name in ("RESUME", "JUMP_BACKWARD") or name.startswith("POP_JUMP_BACKWARD"):
        return True
    return "CALL" in name and type(error) not in BARE_ERRORS


def code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not isinstance(handler, (FunctionType, MethodType)):
        handler = getattr(type(handler), "__call__", None)  # noqa: B004  # the function is wanted
    return getattr(handler, "__code__", None)
