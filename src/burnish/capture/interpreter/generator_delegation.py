"""``yield from``: who a suspended generator delegates to, and how errors thrown into it reach the delegate.

A generator that delegates is suspended at the YIELD_VALUE that follows SEND, with the delegate on top of its stack. An
error thrown in goes to the innermost delegate first; GeneratorExit closes the delegate and goes on in the generator.
"""

from __future__ import annotations

from typing import Any

from .frames import Frame, Generator
from .opcodes.generators import end_send


def delegate_of(frame: Frame) -> Any:
    """What a suspended generator delegates to, or None."""
    at = frame.pc
    names = frame.code.opnames
    if at < len(names) and at >= 2 and names[at - 2] == "SEND":
        return frame.stack[-1]
    return None


def innermost_delegate(frame: Frame) -> Any:
    """What an error thrown into a suspended generator would reach through its ``throw`` or ``close``, if not ours."""
    delegate = delegate_of(frame)
    while type(delegate) is Generator and delegate.frame is not None:
        delegate = delegate_of(delegate.frame)
    return delegate if hasattr(delegate, "throw") or hasattr(delegate, "close") else None


def runs_code_when_closed(generator: Generator) -> bool:
    """Whether closing a generator now would run code: it is suspended inside ``try`` or ``with``, or what it delegates
    to is."""
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
    """Whether the program wrote a ``try`` or ``with`` around this point that closing is noticed by. From 3.12 on the
    compiler puts handlers of its own around every generator (CALL_INTRINSIC_1) and every delegation (CLEANUP_THROW)."""
    names = frame.code.opnames
    row = frame.code.handler_at(frame.pc - 1)
    while row is not None and (names[row.target] == "CLEANUP_THROW" or _passes_by(frame, row.target)):
        row = frame.code.handler_at(row.target)
    return row is not None and names[row.target] != "CALL_INTRINSIC_1"


def _passes_by(frame: Frame, at: int) -> bool:
    """Whether the handler that begins here hands a GeneratorExit on: its clauses name builtin errors, none of which
    that is one of, and it only puts things in order after them."""
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
    """Throw into a delegate that is not ours. Answers what is then raised in ``frame``, None when ``frame`` goes on."""
    try:
        if type(delegate) is Generator:
            if delegate.frame is not None:
                raise ValueError("generator already executing")
        elif isinstance(error, GeneratorExit):
            if hasattr(delegate, "close"):
                delegate.close()
        elif hasattr(delegate, "throw"):
            try:
                frame.stack[-1] = delegate.throw(error)
                frame.pc -= 1  # at YIELD_VALUE, for the delegate's answer
            except StopIteration as stop:
                frame.stack.pop()
                end_send(frame, frame.instructions[frame.pc - 2][1], stop.value)
            return None
    except BaseException as trouble:
        return trouble
    return error
