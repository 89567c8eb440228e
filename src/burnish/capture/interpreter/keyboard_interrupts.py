"""Keyboard interrupts: Ctrl-C, or another signal that stops the program, during captured code or during capture.

Python raises the exception of a signal handler wherever it happens to be, mostly in our code. The program has to
receive it at its own position: its ``finally`` and ``with`` blocks run, its ``except KeyboardInterrupt`` catches it. So
it is raised once more, in the interpreter's frames, and the rest of the call runs as plain Python:

    try:
        outcome = machine.run()
    except BaseException as error:
        if has_passed(error): raise           # the program's frames have seen it
        interrupt = error
    raise_in(machine, interrupt)

An unfinished trace or compilation is dropped, and repeated by the next call. A trace is interrupted only between two of
the program's instructions (``deferred_os_signals``).
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from ...concurrency.outside_errors import came_from_outside
from ...foundation.torch_private import (
    get_function_stack_at,
    len_torch_dispatch_stack,
    len_torch_function_stack,
    pop_torch_dispatch_stack,
    pop_torch_function_stack,
)
from ..engine.break_signals import BreakAfterOperation
from ..engine.tracer import Tracer
from . import unwinding
from .deferred_os_signals import Signals, is_leaving_block
from .frames import Frame, frames_from
from .instruction_loop import Machine


def has_passed(error: BaseException) -> bool:
    """Whether ``error`` has already passed through the program's frames."""
    return _frame_of(error, Machine.unwind) is not None


def is_within_instruction(error: BaseException, frame: Frame) -> bool:
    """Whether a trace was interrupted in the middle of an instruction of ``frame``, and not between two of them. If the
    instruction was a call or a return, another frame goes on behind it."""
    at = _frame_of(error, Tracer.trace)
    if at is None or at.tb_next is None or _frame_of(error, Signals.answer) is not None:
        return False
    return at.tb_frame.f_locals.get("frame") is frame


def _frame_of(error: BaseException, function: Any) -> TracebackType | None:
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code is not function.__code__:
        at = at.tb_next
    return at


def was_met(tracer: Tracer, signal: Any) -> bool:
    """Whether the program received an interrupt during the trace. The trace then does not show its usual behaviour."""
    if isinstance(signal, BreakAfterOperation) and came_from_outside(signal.error):
        return True
    return tracer.trail.has_met_interrupt


def raise_in(machine: Machine, error: BaseException) -> Any:
    """Raise ``error`` before the machine's next instruction, or in the one it has begun. If the program catches it, the
    rest runs as plain Python, and its result is returned."""
    assert machine.frame is not None
    if not is_within_instruction(error, machine.frame):
        while is_leaving_block(machine.frame):
            machine.step()
        machine.frame.pc += 1
    try:
        machine.unwind(error)
    finally:
        del error  # its traceback holds this frame
    return machine.run()


class Leaving(BaseException):
    """Raised in the program's frames around a break that is an error, for their ``finally`` and ``with`` blocks."""


class LeavingMachine(Machine):
    """Leaves the frames: where a block of the program stops the exception, it is raised again behind the block."""

    def __init__(self, frame: Frame | None, error: BaseException):
        super().__init__(frame)
        self.error = self.latest = error

    def unwind(self, error: BaseException) -> None:  # type: ignore[override]
        self.latest = error
        try:
            unwinding.unwind(self, error)
        finally:
            del error

    def step(self) -> None:
        super().step()
        if self.frame is None or self.is_in_block(self.error):
            return
        if self.is_in_block(self.latest):
            self.error = self.latest  # a block has raised it instead
        else:
            self.unwind(self.error)

    def is_in_block(self, error: BaseException) -> bool:
        """Whether a frame is handling ``error``."""
        held = ((frame.handling, *frame.stack) for frame in frames_from(self.frame))
        return any(value is error for values in held for value in values)


programs_left = threading.local()


def leave_blocks(program: Any, machine: Machine, error: Exception) -> None:
    """Leave the program's frames, before ``error`` is raised in their place. The trace has run the program up to a
    break: what its blocks restore must be restored. A block that calls the program again gets its error at once."""
    left = programs_left.__dict__.setdefault("set", set())
    if program in left:
        return
    left.add(program)
    leaving = Leaving(str(error))
    leaver = LeavingMachine(machine.frame, leaving)
    leaver.trail = machine.trail
    frames = [frame for frame in frames_from(machine.frame) if frame.generator is None]
    try:
        raise_in(leaver, leaving)
    except Leaving:
        pass
    except Exception as further:
        error.__context__ = further  # of one of the blocks
    finally:
        left.discard(program)
        leaving.__traceback__ = None
        leaver.error = leaver.latest = leaving
        leaver.let_go()
        for frame in frames:
            frame.release()
        del error, leaving  # no cycles: the program's objects would live until a collection


def run(machine: Machine) -> Any:
    """``machine.run()``, with interrupts raised in the program."""
    try:
        return machine.run()
    except BaseException as error:
        if machine.frame is None or has_passed(error):
            raise
        interrupt = error
    return raise_in(machine, interrupt)


def count_modes() -> tuple[int, int]:
    """The torch function modes and dispatch modes that are on."""
    return len_torch_function_stack(), len_torch_dispatch_stack()


def drop_our_modes(tracer: Tracer, dispatch_modes: int) -> None:
    """After an interrupted trace: remove the recorder, and dispatch modes above this number. The program has entered
    none there, because a trace ends where it enters one."""
    while len_torch_dispatch_stack() > dispatch_modes:
        pop_torch_dispatch_stack(None)
    while (count := len_torch_function_stack()) and get_function_stack_at(count - 1) is tracer.recorder:
        pop_torch_function_stack()


def drop_modes(counts: tuple[int, int]) -> None:
    """Remove the modes above these counts. An interrupt may come between entering one and its ``try``."""
    while len_torch_function_stack() > counts[0]:
        pop_torch_function_stack()
    while len_torch_dispatch_stack() > counts[1]:
        pop_torch_dispatch_stack(None)
