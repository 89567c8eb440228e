"""Generator delegation (``yield from``): finds the delegate of a suspended generator and throws errors into it.

A generator that delegates is suspended at the YIELD_VALUE after SEND, with the delegate on top of its stack. An error
thrown in goes to the innermost delegate first. GeneratorExit closes the delegate and is then raised in the generator.
"""

from __future__ import annotations

from typing import Any

from .frames import Frame, Generator, delegate_of
from .opcodes.generators import end_send


def innermost_delegate(frame: Frame) -> Any:
    """The foreign delegate, if it has ``throw`` or ``close``, that an error thrown into the generator reaches."""
    delegate = delegate_of(frame)
    while takes_errors(delegate) and delegate.frame is not None:
        delegate = delegate_of(delegate.frame)
    if type(delegate) is Generator and delegate.builtin is not None:
        return None
    return delegate if hasattr(delegate, "throw") or hasattr(delegate, "close") else None


def takes_errors(delegate: Any) -> bool:
    """Whether it is a generator of ours. Builtin iterators have neither ``throw`` nor ``close``."""
    return type(delegate) is Generator and delegate.builtin is None


def runs_code_when_closed(generator: Generator) -> bool:
    """Whether closing a generator now would run code: it, or its delegate, is suspended inside ``try`` or ``with``."""
    while generator.frame is not None and generator.started and not generator.running:
        frame = generator.frame
        if _inside_try(frame):
            return True
        delegate = delegate_of(frame)
        if type(delegate) is not Generator:
            return hasattr(type(delegate), "close")
        generator = delegate
    return False


def _inside_try(frame: Frame) -> bool:
    """Whether this point is inside a ``try`` or ``with`` of the program that notices closing. From 3.12 on the compiler
    adds handlers of its own around every generator (CALL_INTRINSIC_1) and every delegation (CLEANUP_THROW)."""
    names = frame.code.opnames
    row = frame.code.handler_at(frame.pc - 1)
    while row is not None and (names[row.target] == "CLEANUP_THROW" or _passes_by(frame, row.target)):
        row = frame.code.handler_at(row.target)
    return row is not None and names[row.target] != "CALL_INTRINSIC_1"


def _passes_by(frame: Frame, at: int) -> bool:
    """Whether the handler that begins here passes a GeneratorExit on: its clauses name builtin errors that do not
    include it, and after them it only cleans up."""
    names, instructions = frame.code.opnames, frame.code.instructions
    if names[at] == "COPY":
        return names[at + 1 : at + 3] == ["POP_EXCEPT", "RERAISE"]
    if names[at] != "PUSH_EXC_INFO":
        return False
    at += 1
    while names[at] == "LOAD_GLOBAL" and names[at + 1] == "CHECK_EXC_MATCH" and "IF_FALSE" in names[at + 2]:
        name = instructions[at][1]
        name = name[0] if isinstance(name, tuple) else name
        kind = frame.builtins.get(name)
        if name in frame.globals or not isinstance(kind, type) or not issubclass(kind, Exception):
            return False
        at = instructions[at + 2][1]
    return names[at] == "RERAISE"


def delegate_closed(frame: Frame) -> BaseException:
    """The delegate is closed: the GeneratorExit that waits on the stack of ``frame`` is raised in ``frame`` itself."""
    error, frame.stack[-1] = frame.stack[-1], None
    return error


def throw_into_foreign(frame: Frame, delegate: Any, error: BaseException) -> BaseException | None:
    """Throw into a delegate that is not ours. Returns the error to raise in ``frame``, or None to continue."""
    try:
        if type(delegate) is Generator:
            if delegate.frame is not None and delegate.builtin is None:
                raise ValueError("generator already executing")
        elif isinstance(error, GeneratorExit):
            if hasattr(delegate, "close"):
                delegate.close()
        elif hasattr(delegate, "throw"):
            try:
                frame.stack[-1] = delegate.throw(error)
                frame.pc -= 1  # at YIELD_VALUE, for the delegate's value
            except StopIteration as stop:
                frame.stack.pop()
                end_send(frame, frame.instructions[frame.pc - 2][1], stop.value)
            return None
    except BaseException as trouble:
        return trouble
    return error
