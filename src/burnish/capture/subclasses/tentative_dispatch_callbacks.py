"""Nested calls: Python functions that native code calls back while a segment is traced are interpreted, too.

    torch.linear(x, weight)            native; its dispatcher calls back
        Quantized.__torch_dispatch__   interpreted in between: its reads are guarded, its torch calls recorded

The interpreter's frames are set aside for the call. If the function breaks the graph, or is about to change something
older than the call, plain Python finishes it, and the caller gets the reason: its recorded part is then discarded.
"""

from __future__ import annotations

import collections
import gc
import types
from typing import Any

from ...foundation.torch_private import (
    OpOverload,
    OpOverloadPacket,
    get_torch_function_state,
    pop_mode,
    set_torch_function_state,
)
from ...foundation.torch_private import len_torch_function_stack as _count_modes
from ..engine.break_signals import BreakAfterOperation
from ..interpreter.argument_binding import frame_for
from ..interpreter.frames import RAISES, Frame, Generator, frames_from
from ..interpreter.program_or_tracer_errors import call_for_program, raise_internal_error
from ..python.trace_rollback import Region, forget_generators

CONTAINERS = (list, dict, set, collections.deque)
UNSEARCHED = frozenset((types.ModuleType, types.CodeType, OpOverload, OpOverloadPacket, str, int, float, type(None)))
MOST_OLDER = 2000


class NestedRegion(Region):
    """A nested call that is being interpreted. If it turned out not to be interpretable after it has changed an object,
    the change would be repeated twice: by the segment and by the call. So it must not change anything older. Calls for
    their effect, such as `print`, are only recorded, and can be forgotten."""

    takes_effects = True
    is_rule = True

    def __init__(self, m: Any, args: tuple, given: tuple):
        super().__init__(m)
        self.args, self.caller = args, m.frame
        self.made.update(map(id, given), self.outer.made if self.outer is not None else ())
        self.older: set[int] | None = None

    def may_change(self, target: Any) -> bool:
        return super().may_change(target) or self.is_new_container(target)

    def is_new_container(self, target: Any) -> bool:
        """Whether a container was made in the call. Those from outside have an origin. Others that the program made
        before are found from the arguments and from the frames that wait for the call."""
        if type(target) not in CONTAINERS or self.m.heap.origin_of(target) is not None:
            return False
        if self.older is None:
            self.older = set()
            self.note_older([self.args, *values_in_frames(self.caller)])
        return len(self.older) < MOST_OLDER and id(target) not in self.older

    def note_older(self, roots: list) -> None:
        waiting, older = roots, self.older
        assert older is not None
        while waiting and len(older) < MOST_OLDER:
            value = waiting.pop()
            if id(value) in older or type(value) in UNSEARCHED or self.m.heap.origin_of(value) is not None:
                continue
            if isinstance(value, type) and id(value) not in self.m.heap.fresh:
                continue
            older.add(id(value))
            if type(value) is types.FunctionType:
                waiting += (value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__)
            elif type(value) is Generator:
                waiting += values_in_frames(value.frame)
            else:
                waiting += gc.get_referents(value)

    def will_call(self, function: Any, args: tuple, kwargs: dict) -> None:
        """Torch calls are part of the graph, those that write to tensors as well."""


class PureRegion(NestedRegion):
    """A nested call that may be given up before its end. So it must not have any effect, nor call torch."""

    takes_effects = False

    def will_call(self, function: Any, args: tuple, kwargs: dict) -> None:
        self.refuse("a call of a torch function")


def values_in_frames(frame: Frame | None) -> list:
    return [part for each in frames_from(frame) for part in (each.locals, each.stack, each.namespace)]


def call_function(function, args):  # type: ignore[no-untyped-def]
    """The function that is interpreted for the call."""
    return function(*args)


def finish(machine: Any) -> Any:
    machine.step()  # the instruction of the break: the operation may have run already
    return machine.as_plain().run()


def interpret(
    m: Any, function: Any, args: tuple, given: tuple = (), region: type[NestedRegion] = NestedRegion
) -> tuple[Any, str | None]:
    """The result of ``function(*args)``, and why it was not interpreted to its end. ``given``: mutable objects made for
    the call."""
    frame, answer, signals, result = m.frame, m.answer, m.signals, m.result
    calls, inputs = m.recorder.mark()
    effects, rules = len(m.effects), get_torch_function_state()
    modes, count = [*m.modes], _count_modes()
    try:
        made = frame_for(call_function, [function, args])
        made.depth = m.depth() + 1
        m.frame, m.region = made, region(m, args, given)
        try:
            signal = m.trace()
        except Exception as error:  # no error of the program leaves `trace` so
            set_torch_function_state(rules)  # blocks of the rule have not been left
            raise_internal_error("tracing", error)
        if signal is None:
            return m.result, None
        if signal.kind is None and isinstance(signal, BreakAfterOperation) and signal.error is not None:
            m.program_error = signal.error
            raise signal.error
        assert m.frame is not None
        m.frame.pc -= 1
        m.recorder.forget(calls, inputs)
        del m.effects[effects:]
        machine, _ = m.go_on(m, signal, m.frame)
        return call_for_program(m, finish, (machine,), {}), signal.what
    finally:
        while _count_modes() > count:  # that plain Python needed
            pop_mode()
        m.modes[:] = modes
        m.frame, m.answer, m.signals, m.result = frame, answer, signals, result


def interpret_purely(m: Any, function: Any, args: tuple) -> tuple[Any, str | None]:
    """The result of ``function(*args)``, or why it cannot be interpreted as a whole. Then nothing has happened. The
    result is RAISES if it raises an error."""
    frame, answer, signals, result = m.frame, m.answer, m.signals, m.result
    calls, inputs = m.recorder.mark()
    effects, generators = len(m.effects), len(m.heap.generators)
    try:
        made = frame_for(call_function, [function, args])
        made.depth = m.depth() + 1
        m.frame, m.region = made, PureRegion(m, args, ())
        signal = m.trace()
        if signal is None:
            return m.result, None
        m.recorder.forget(calls, inputs)
        forget_generators(m, generators)
        del m.effects[effects:]
        if signal.kind is None and isinstance(signal, BreakAfterOperation) and isinstance(signal.error, Exception):
            return RAISES, None
        return None, signal.what
    finally:
        m.frame, m.answer, m.signals, m.result = frame, answer, signals, result
