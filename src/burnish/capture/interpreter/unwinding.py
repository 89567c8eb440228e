"""Unwinding: leaves frames until one handles the exception, as the exception table says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import frames as fr
from .exception_context import extend_context, stop_iteration_error
from .frames import Frame
from .generator_delegation import delegate_closed
from .opcodes.control_flow import leave_loop
from .opcodes.generators import end_send

if TYPE_CHECKING:
    from .instruction_loop import Machine


def unwind(machine: Machine, error: BaseException) -> None:
    """Find the handler of ``error``, leaving frames on the way."""
    again, machine.reraised = error is machine.reraised, None
    if not again and error is not machine.thrown:
        extend_context(error, machine.handled())
    machine.thrown = None
    while True:
        frame = machine.frame
        if frame is None:
            try:
                raise machine.trail.attach(error)
            finally:
                del error
        if not again:
            machine.trail.note(error, frame)
        row = frame.code.handler_at(frame.pc - 1)
        if row is not None:
            del frame.stack[row.depth :]
            if row.push_index:
                frame.stack.append(frame.pc - 1)
            frame.stack.append(error)
            frame.pc = row.target
            if not again:
                machine.trail.attach(error)
            return
        again = False
        error = leave_by_error(machine, frame, error)
        if error is None:
            return


def leave_by_error(machine: Machine, frame: Frame, error: BaseException) -> Any:
    """Pop ``frame`` that does not handle ``error``. Returns the error that continues to unwind, or None if this was its
    end."""
    caller = machine.frame = frame.caller
    frame.caller = None
    generator = frame.generator
    completion = frame.completion
    if generator is not None:
        generator.stop(frame, caller)
        if generator.builtin is not None:
            generator = None  # its StopIteration is its end
        elif isinstance(error, StopIteration):
            error = stop_iteration_error(error)
    if caller is None:
        return error
    if completion == fr.SEND and generator is not None:
        extend_context(error, caller.handling)  # an error thrown into it goes to the generator that delegated to it
    if completion == fr.FOR_ITER and isinstance(error, StopIteration):
        leave_loop(caller, caller.instructions[caller.pc - 1][1])
        return None
    if completion == fr.SEND and generator is None and isinstance(error, StopIteration):
        end_send(caller, caller.instructions[caller.pc - 1][1], error.value)
        return None
    if completion == fr.CLOSE and isinstance(error, (GeneratorExit, StopIteration)):
        caller.stack.append(None)
        return None
    if completion == fr.CLOSE_DELEGATE and isinstance(error, (GeneratorExit, StopIteration)):
        return delegate_closed(caller)
    return error
