"""Resumption of generators: next, send and throw push the suspended frame, and an error goes to its delegate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import frames as fr
from .exception_context import set_context
from .frames import EXHAUSTED, PUSHED, Generator, Raised, delegate_of
from .generator_delegation import innermost_delegate, takes_errors, throw_into_foreign

if TYPE_CHECKING:
    from .instruction_loop import Machine


def resume(machine: Machine, generator: Generator, value: Any, completion: int) -> Any:
    """Push a suspended generator's frame, sending ``value`` in."""
    frame = generator.frame
    if generator.running:
        if generator.builtin is None:
            raise Raised(ValueError("generator already executing"))
        around = [each for each in fr.frames_from(machine.frame) if each.generator is generator]
        frame = (around[0] if around else frame).at_start()  # a step inside of another: C code's share the state
    if frame is None:
        if completion == fr.FOR_ITER:
            return EXHAUSTED
        raise Raised(StopIteration())
    if not generator.started and value is not None:
        raise Raised(TypeError("can't send non-None value to a just-started generator"))
    generator.started = generator.running = True
    frame.generator = generator
    frame.stack.append(value)
    return machine.push(frame, completion)


def throw(machine: Machine, generator: Generator, error: BaseException, completion: int) -> Any:
    """Raise ``error`` where a generator is suspended, in its innermost delegate first.

    Raises ``Raised``; the current frame is then the one that handles the error, a generator's or the caller's. Returns
    PUSHED only if a foreign delegate took the error.
    """
    if generator.running:
        raise Raised(ValueError("generator already executing"))
    if generator.frame is None or not generator.started:
        generator.frame = None
        raise Raised(error)
    machine.reach_foreign(innermost_delegate(generator.frame))
    waiting = machine.frame
    while True:
        frame = generator.frame
        generator.running = True
        frame.generator = generator
        machine.push(frame, completion)
        delegate = delegate_of(frame)
        if not takes_errors(delegate) or delegate.running or delegate.frame is None:
            break
        frame.pc -= 1  # at the SEND that waits for the delegate
        completion = fr.SEND
        if isinstance(error, GeneratorExit):
            frame.stack.append(error)
            completion = fr.CLOSE_DELEGATE
        generator = delegate
    frame.stack.append(None)  # the value that resuming would have sent
    if delegate is not None:
        error = throw_into_foreign(frame, delegate, error)
        if error is None:
            return PUSHED
    set_context(error, machine.frame.handling)  # not what the caller handles
    machine.thrown = error
    while machine.frame is not waiting:
        frame = machine.frame
        if (
            frame.code.handler_at(frame.pc - 1) is not None
            or frame.completion == fr.CLOSE
            and isinstance(error, GeneratorExit)
        ):
            break
        machine.trail.note(error, frame)
        error = machine.leave_by_error(frame, error)
    raise Raised(error)


def send(machine: Machine, receiver: Any, value: Any) -> tuple[bool, Any]:
    """(ended, result) of sending ``value`` to a generator or iterator."""
    try:
        if type(receiver) is Generator:
            return False, machine.resume(receiver, value, fr.SEND)
        if value is None:
            return False, next(receiver)
        return False, receiver.send(value)
    except StopIteration as stop:
        return True, stop.value
    except Raised as raised:
        if isinstance(raised.error, StopIteration):
            return True, raised.error.value
        raise
