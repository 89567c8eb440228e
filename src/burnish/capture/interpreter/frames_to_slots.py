"""Frame layouts: splits frames into a constant layout and slots with values, and rebuilds them.

The state of a program between two instructions is its chain of frames. Its *layout* is everything that does not vary
with the data: code, position, which locals are bound, how deep the stacks are. Its *slots* are the values. Equal
layouts are the same continuation, so a loop over a break returns to it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from ..engine.object_lifetimes import ends_unseen, may_be_referenced_weakly
from .bytecode_decoder import dead_locals
from .decoded_code import Code
from .frames import NULL, UNBOUND, Frame, Generator, frames_from


class FrameLayout:
    """One frame without its values."""

    __slots__ = """
        bound builtins code completion generator globals handling key n_stack nulls pc spare unbound_on_stack
    """.split()

    def __init__(self, frame: Frame):
        self.code: Code = frame.code
        self.globals, self.builtins = frame.globals, frame.builtins
        self.key = key_of(frame)
        (
            _,
            _,
            self.pc,
            self.completion,
            self.spare,
            self.bound,
            self.n_stack,
            self.nulls,
            self.unbound_on_stack,
            self.handling,
            self.generator,
        ) = self.key

    @property
    def n_slots(self) -> int:
        held = self.handling + self.generator + self.code.is_body
        return len(self.bound) + self.n_stack - len(self.nulls) + held

    def labels(self) -> list[str]:
        names = [self.code.names[i] for i in self.bound]
        names += [f"value {i} on the stack" for i in range(self.n_stack - len(self.nulls))]
        names += ["the handled exception"] * self.handling + ["the running generator"] * self.generator
        return names + ["the namespace of the class"] * self.code.is_body

    def build(self, values: Any) -> Frame:
        """A frame of this layout; ``values`` is an iterator over the slots."""
        local_values: list = [UNBOUND] * self.code.n_locals
        for i in self.bound:
            local_values[i] = next(values)
        frame = Frame(self.code, self.globals, self.builtins, local_values)
        if self.nulls:
            frame.stack = [
                (UNBOUND if i in self.unbound_on_stack else NULL) if i in self.nulls else next(values)
                for i in range(self.n_stack)
            ]
        elif self.n_stack:
            frame.stack = list(islice(values, self.n_stack))
        frame.pc, frame.completion, frame.spare = self.pc, self.completion, self.spare
        if self.handling:
            frame.handling = next(values)
        if self.generator:
            generator: Generator = next(values)
            generator.frame, generator.running, generator.started = frame, True, True
            frame.generator = generator
        if self.code.is_body:
            frame.namespace = next(values)
        return frame


def key_of(frame: Frame) -> tuple:
    """The key of a frame's layout: equal keys are equal layouts."""
    stack = frame.stack
    nulls = tuple([i for i, v in enumerate(stack) if v is NULL or v is UNBOUND])
    return (
        id(frame.code),
        id(frame.globals),
        frame.pc,
        frame.completion,
        frame.spare,
        tuple([i for i, v in enumerate(frame.locals) if v is not UNBOUND]),
        len(stack),
        nulls,
        nulls and tuple([i for i in nulls if stack[i] is UNBOUND]),
        frame.handling is not None,
        frame.generator is not None,
    )


def values_of(frame: Frame) -> list:
    """The values of a frame's slots, in the order of ``FrameLayout.labels``."""
    taken = [v for v in frame.locals if v is not UNBOUND]
    taken += [v for v in frame.stack if v is not NULL and v is not UNBOUND]
    if frame.handling is not None:
        taken.append(frame.handling)
    if frame.generator is not None:
        taken.append(frame.generator)
    if frame.code.is_body:
        taken.append(frame.namespace)
    return taken


class SlotLayout:
    """A chain of frames without its values, outermost first."""

    __slots__ = ("transition", "frames", "key")

    def __init__(self, frames: list[FrameLayout]):
        self.frames = frames
        self.key = tuple([f.key for f in frames])
        self.transition: Any = UNBOUND  # how the next instruction changes the slots, once known: ``break_transition``

    def build(self, slots: list) -> Frame:
        values = iter(slots)
        caller = None
        for layout in self.frames:
            frame = layout.build(values)
            frame.caller = caller
            caller = frame
        assert caller is not None
        for frame in frames_from(caller):
            if frame.generator is not None:
                frame.generator.frame = frame  # at last the outermost, if it runs inside of itself
        return caller

    def labels(self) -> list[str]:
        return [name for frame in self.frames for name in frame.labels()]


def take_apart(top: Frame, may_drop: Callable[[Any], bool] = ends_unseen) -> tuple[SlotLayout, list]:
    """The layout and the slots of the chain that ends in ``top``. Drops locals that will not be read again."""
    chain = [*frames_from(top)][::-1]
    shared: list[tuple[list, int, Any]] = []
    for frame in chain:
        # A caller waits inside its instruction; values needed on any way out of that instruction are live.
        _forget_dead(frame, frame.pc if frame is top else max(frame.pc - 1, 0), shared, may_drop)
    if shared:
        held = {id(value) for frame in chain for value in values_of(frame)}
        for values, i, value in shared:
            if id(value) in held:
                values[i] = value
    return SlotLayout([FrameLayout(frame) for frame in chain]), [value for frame in chain for value in values_of(frame)]


def _forget_dead(frame: Frame, at: int, shared: list[tuple[list, int, Any]], may_drop: Callable[[Any], bool]) -> None:
    """``shared`` receives the locals that stay if the program holds the object elsewhere: it may be referenced weakly
    next, by the instruction that it is an operand of, and then must live until the function returns."""
    values = frame.locals
    for i in dead_locals(frame.code, at):
        value = values[i]
        if value is not UNBOUND and may_drop(value):
            values[i] = UNBOUND
            if may_be_referenced_weakly(value):
                shared.append((values, i, value))


# ---- guards on generators


def is_exhausted(generator: Generator) -> bool:
    return type(generator) is Generator and generator.frame is None


def is_suspended_as(generator: Generator, expected: tuple) -> bool:
    """Whether a generator is suspended at the same place, with the same locals bound, as during the trace."""
    frame = generator.frame if type(generator) is Generator else None
    if frame is None or generator.running or frame.handling is not None:
        return False
    return (generator.started, key_of(frame)) == expected
