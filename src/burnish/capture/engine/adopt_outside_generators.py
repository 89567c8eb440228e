"""Generators under a trace: a generator from outside becomes part of the trace when the program advances it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import breaks
from ..interpreter import frames as fr
from ..interpreter.frames import EXHAUSTED, PUSHED, Frame, Generator, Raised, delegate_of, frames_from
from ..interpreter.frames_to_slots import FrameLayout, is_exhausted, is_suspended_as
from ..interpreter.generator_delegation import takes_errors
from ..interpreter.instruction_loop import Machine
from ..python.operators import iteration

if TYPE_CHECKING:
    from .tracer import Tracer


def adopt_running_generators(tracer: Tracer, frame: Frame | None) -> None:
    """Make generators that run in the frames of this continuation part of the trace, although they are in slots."""
    for each in frames_from(frame):
        if each.generator is not None:
            tracer.heap.take_over(each.generator)


def take_over(tracer: Tracer, generator: Generator) -> None:
    """A generator from outside is about to be advanced: from here its frame is part of this trace.

    Its position is guarded like other outside state, its locals are read through it, and its final state is an
    effect. So a loop over a generator is still captured after a break in the loop or the generator.
    """
    origin = tracer.heap.origin_of(generator)
    if origin is None or tracer.heap.runs_here(generator):
        return
    frame = generator.frame
    if generator.running or frame is not None and frame.handling is not None:
        tracer.stop(breaks.OUTSIDE_ITERATOR, "a generator that is busy")
    source = origin.source
    tracer.heap.take_over(generator)
    if frame is None:
        tracer.heap.guard_answer(is_exhausted, source)
        return
    layout = FrameLayout(frame)
    tracer.heap.guard_answer(is_suspended_as, source, (generator.started, layout.key))
    tracer.heap.sources.pin(frame.code)  # the key names it by address
    places, stack = source.attr("frame").attr("locals"), source.attr("frame").attr("stack")
    for i in layout.bound:
        frame.locals[i] = tracer.heap.admit(frame.locals[i], places.item(i), is_slot=True)
    for i, value in enumerate(frame.stack):
        if i not in layout.nulls:
            frame.stack[i] = tracer.heap.admit(value, stack.item(i), is_slot=True)


def resume(tracer: Tracer, generator: Generator, value: Any, completion: int) -> Any:
    if generator.code in tracer.left:
        tracer.stop(breaks.LEFT_TO_PYTHON, tracer.left[generator.code])
    if tracer.region is not None:
        tracer.region.will_write(generator)
    return Machine.resume(tracer, generator, value, completion)


def throw(tracer: Tracer, generator: Generator, error: BaseException, completion: int) -> Any:
    waiting = tracer.frame
    delegate = delegate_of(generator.frame) if generator.frame is not None else None
    while takes_errors(delegate) and delegate.frame is not None:
        tracer.take_over(delegate)  # the error continues in it, and it may yield again
        delegate = delegate_of(delegate.frame)
    try:
        return Machine.throw(tracer, generator, error, completion)
    except Raised as raised:
        if tracer.frame is not waiting:
            raise
        trouble = raised.error
    return tracer.raise_here(trouble)


def reach_foreign(tracer: Tracer, iterator: Any) -> None:
    if iterator is not None:
        tracer.stop(breaks.OUTSIDE_ITERATOR, "an error thrown into what a generator delegates to")


def send(tracer: Tracer, receiver: Any, value: Any) -> tuple[bool, Any]:
    if type(receiver) is Generator:
        tracer.take_over(receiver)
        return Machine.send(tracer, receiver, value)
    if value is not None:
        tracer.stop(breaks.OUTSIDE_ITERATOR, "a value sent to a foreign iterator")
    answer = iteration.advance(tracer, receiver)
    if answer is PUSHED:
        assert tracer.frame is not None
        tracer.frame.completion = fr.SEND
        return False, PUSHED
    return (True, None) if answer is EXHAUSTED else (False, answer)
