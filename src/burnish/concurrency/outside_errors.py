"""Errors from outside: raised in this thread by a signal handler, or by another thread (``PyThreadState_SetAsyncExc``).

Python raises one wherever the thread happens to be, mostly in our code. There it says nothing about what that code was
doing: it is neither a defect nor a reason to refuse a graph. Code that handles every ``Exception`` lets it pass first:

    try:
        compiled = backend(graph)
    except Exception as error:
        reraise_from_outside(error)
        compiled = eager                # the backend failed

A test (tests/test_architecture.py) finds handlers that do not.
"""

from __future__ import annotations

import functools
import opcode
import signal
from _queue import Empty
from types import CodeType, FunctionType, MethodType
from typing import Any

# Signals that programs have handlers for. The others stop, continue or kill a process, or report a crash.
NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF", "SIGBREAK")
NUMBERS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
CALLERS: list[CodeType] = []
"""Functions of ours that call the program's handlers."""
BARE_ERRORS = (MemoryError, StopIteration, StopAsyncIteration, GeneratorExit, KeyError, Empty)
"""C code raises these without arguments; a KeyError if the key is the empty tuple."""

ARGS, CAUSE, TRACEBACK = (vars(BaseException)[name].__get__ for name in ("args", "__cause__", "__traceback__"))


def reraise_from_outside(error: BaseException) -> None:
    """Raise the error that is being handled again if it came from outside."""
    if came_from_outside(error):
        raise error


class Suppressing:
    """``contextlib.suppress``, which suppresses no error from outside."""

    def __init__(self, *kinds: type[Exception]) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return isinstance(error, self.kinds) and not came_from_outside(error)


def came_from_outside(error: BaseException | None) -> bool:
    """Whether ``error`` was raised to stop the program from outside, not by something the program did."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)) or is_asynchronous(error):
        return True
    at = None if error is None else TRACEBACK(error)
    if at is None:
        return False
    handlers = [*CALLERS, *(code_of(signal.getsignal(number)) for number in NUMBERS)]
    while at is not None and at.tb_frame.f_code not in handlers:
        at = at.tb_next
    return at is not None


def is_asynchronous(error: BaseException | None) -> bool:
    """Whether another thread raised ``error`` in this one. Python instantiates its class without arguments, at the
    start of a function, at a backward jump or where a call returns. An error of C code has arguments, with a few
    exceptions; an error of Python code has its ``raise``."""
    # Read past what the class of the error defines under these names.
    at = None if error is None else TRACEBACK(error)
    if at is None or error is None or ARGS(error) or CAUSE(error) is not None:
        return False
    while at.tb_next is not None:
        at = at.tb_next
    name = opcode.opname[at.tb_frame.f_code.co_code[at.tb_lasti]]
    if name in ("RESUME", "JUMP_BACKWARD") or name.startswith("POP_JUMP_BACKWARD"):
        return True
    # Python 3.11 compares and jumps in one step.
    return ("CALL" in name or name == "COMPARE_OP") and type(error) not in BARE_ERRORS


def code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):  # signal.SIG_DFL, whose class has the __call__ of its metaclass
        return None
    if not isinstance(handler, (FunctionType, MethodType)):
        handler = getattr(type(handler), "__call__", None)  # noqa: B004  # the function is wanted
    return getattr(handler, "__code__", None)
