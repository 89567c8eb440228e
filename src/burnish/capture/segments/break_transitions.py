"""Break transitions: maps the slots at the end of a segment to those of the next continuation, without an interpreter.

    POP_JUMP_IF_FALSE, slots [x, y, stack: mask]     bool(mask) -> True: [x, y] at the next line; False: [y] at another
    CALL, slots [x, stack: function, stack: x]       function(x) -> [x, stack: its result] after the call

An instruction at a break always changes the slots in the same target: some are dropped, and a result is added. This is
found once, by an interpreter that executes the instruction on placeholders for the slots. From then on the operation
runs on the slots themselves, and no frame is built or split. In unusual cases the frames are built, and the machine
continues from the operation that has run.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getprofile, gettrace
from typing import Any

from ...errors import OURS
from ..engine.object_lifetimes import ends_unseen, may_be_referenced_weakly
from ..interpreter.emulated_frames import call_at, looks_at_frames, makes_class_of_caller
from ..interpreter.execute_with_given_result import CompletedInstruction
from ..interpreter.frame_introspection import FRAME_CALLS
from ..interpreter.frames import EXHAUSTED, UNBOUND, Frame, Generator
from ..interpreter.frames_to_slots import SlotLayout, take_apart
from ..interpreter.instruction_loop import Machine, may_have_stand_in


class SlotPlace:
    """A placeholder for a slot's value."""

    __slots__ = ("at",)

    def __init__(self, at: int):
        self.at = at


class KeptPlace(SlotPlace):
    """Of a dead local that stays."""

    __slots__ = ("__weakref__",)

    def __del__(self) -> None:
        """``ends_unseen`` finds it, and does not look at what it does."""


class NotSimple(BaseException):
    """An instruction that does more than one operation on its operands, or an unsupported one."""


class TransitionProbe(Machine):
    """Executes an instruction on placeholders: records the operation, and returns the given result. A comparison, or
    an operator such as ``+``, is simple for numbers only (``BreakTransition.is_for``)."""

    def __init__(self, frame: Frame | None, answer: Any):
        super().__init__(frame)
        self.asked: tuple[Callable, tuple[int, ...], dict[str, int]] | None = None
        self.answer = answer

    def note(self, perform: Callable, operands: tuple, named: dict[str, Any]) -> Any:
        if self.asked is not None or not all(isinstance(x, SlotPlace) for x in (*operands, *named.values())):
            raise NotSimple
        self.asked = perform, tuple(x.at for x in operands), {name: x.at for name, x in named.items()}
        return self.answer

    def truth(self, value: Any) -> Any:
        return self.note(ask_truth, (value,), {})

    def next_for(self, iterator: Any) -> Any:
        return self.note(advance, (iterator,), {})

    def call(self, function: Any, args: tuple, kwargs: dict) -> Any:
        return self.note(call, (function, *args), kwargs)

    def binary(self, operation: Callable, left: Any, right: Any) -> Any:
        return self.note(operation, (left, right), {})

    def unwind(self, *args: Any) -> Any:
        raise NotSimple

    import_name = store_global = delete_global = store_name = delete_name = unwind  # they would happen


NUMBERS = (int, float, bool)


def ask_truth(value: Any) -> Any:
    return bool(value)


def advance(iterator: Any) -> Any:
    return next(iterator, EXHAUSTED)


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Performed by ``call_at``."""


class TransitionTarget:
    """The next slots and layout for one result."""

    __slots__ = ("answer", "continuation", "dropped", "keeping", "layout", "picks")

    def __init__(self, layout: SlotLayout, picks: list[int], dropped: list[int], answer: Any):
        self.dropped = dropped  # dead locals, without the operands on the stack, which go in any case
        self.layout = layout
        self.picks = picks  # old slots by index, in their new order; one more index is the result
        self.answer = answer  # the probe's
        self.continuation: Any = None
        self.keeping: dict[tuple[int, ...], TransitionTarget] = {}  # targets where some of the dropped slots stay

    def keep(self, before: SlotLayout, slots: tuple[int, ...]) -> TransitionTarget:
        """The target where these of the dropped slots stay."""
        target = self.keeping.get(slots)
        if target is None:
            target = self.keeping[slots] = probe_instruction(before, self.answer, slots)[1]
        return target


class BreakTransition:
    """How the instruction at the end of a segment changes its slots."""

    __slots__ = ("named", "operands", "other", "perform", "place", "usual")

    def __init__(self, layout: SlotLayout):
        if any(frame.handling or frame.generator for frame in layout.frames):
            raise NotSimple
        answer = SlotPlace(-1)
        (self.perform, self.operands, self.named), self.usual = probe_instruction(layout, answer)
        self.other: TransitionTarget | None = None
        top = layout.frames[-1]
        at = next((frame for frame in reversed(layout.frames) if not frame.code.co.co_filename.startswith(OURS)), top)
        self.place = at.code, at.code.lines[at.pc - (at is not top)], at.globals
        if self.perform is ask_truth:
            self.usual, self.other = (probe_instruction(layout, answer)[1] for answer in (True, False))
        elif self.perform is advance:
            self.other = probe_instruction(layout, EXHAUSTED)[1]

    def is_for(self, slots: list) -> bool:
        """Whether these operands cause nothing but the operation itself."""
        operand = slots[self.operands[0]]
        if self.perform is call:
            if looks_at_frames(operand) or makes_class_of_caller(operand, (None,) * (len(self.operands) - 1)):
                return False
            return not may_have_stand_in(operand) or operand not in FRAME_CALLS
        if self.perform not in (ask_truth, advance):
            return all(type(slots[at]) in NUMBERS for at in self.operands)
        return self.perform is not advance or type(operand) is not Generator

    def target_for(self, answer: Any) -> TransitionTarget:
        if self.perform is ask_truth:
            return self.usual if answer else self.other  # type: ignore[return-value]
        return self.other if answer is EXHAUSTED else self.usual  # type: ignore[return-value]


def probe_instruction(
    layout: SlotLayout, answer: Any, kept: tuple[int, ...] = ()
) -> tuple[tuple[Callable, tuple[int, ...], dict[str, int]], TransitionTarget]:
    count = sum(frame.n_slots for frame in layout.frames)
    probe = TransitionProbe(layout.build([(KeptPlace if at in kept else SlotPlace)(at) for at in range(count)]), answer)
    before = probe.frame
    probe.step()
    if probe.asked is None or probe.frame is not before or before is None:
        raise NotSimple
    after, taken = take_apart(before)
    if not all(isinstance(x, SlotPlace) or x is answer for x in taken):
        raise NotSimple
    picks = [x.at if isinstance(x, SlotPlace) and x is not answer else count for x in taken]
    dropped = sorted(set(range(count)).difference(picks))
    if dropped and not kept:
        may_stay = probe_instruction(layout, answer, tuple(dropped))[1].picks
        dropped = [at for at in dropped if at in may_stay]
    return probe.asked, TransitionTarget(after, picks, dropped, answer)


def transition_of(layout: SlotLayout) -> BreakTransition | None:
    try:
        return BreakTransition(layout)
    except NotSimple:
        return None


def apply_transition(layout: SlotLayout, slots: list, continuation_for: Callable[[SlotLayout], Any]) -> tuple[Any, Any]:
    """(the next continuation, its slots), or (None, a machine that has to execute the instruction)."""
    if layout.transition is UNBOUND:
        layout.transition = transition_of(layout)
    transition: BreakTransition | None = layout.transition
    if transition is None or not transition.is_for(slots):
        return None, Machine(layout.build(slots))
    was_profiled = getprofile() is not None
    answer, error = perform_operation(transition, slots)
    if error is None and not sees_further_calls(was_profiled):
        target = transition.target_for(answer)
        kept = [at for at in target.dropped if not ends_unseen(slots[at]) or stays(slots, at, target, answer)]
        if kept:
            target = target.keep(layout, tuple(kept))
        if target.continuation is None:
            target.continuation = continuation_for(target.layout)
        slots.append(answer)
        return target.continuation, [slots[at] for at in target.picks]
    try:
        return None, CompletedInstruction(layout.build(slots), answer, error)
    finally:
        del answer, error  # its traceback refers to this frame: the cycle would keep the values alive


def sees_further_calls(was_profiled: bool) -> bool:
    """Whether a break has set a trace function, or a profile function where none was set before."""
    return gettrace() is not None or (not was_profiled and getprofile() is not None)


def stays(slots: list, at: int, target: TransitionTarget, answer: Any) -> bool:
    """Whether a local stays, as ``take_apart`` decides it, because the program holds the object elsewhere."""
    value = slots[at]
    return may_be_referenced_weakly(value) and any(
        (slots[pick] if pick < len(slots) else answer) is value for pick in target.picks
    )


def perform_operation(transition: BreakTransition, slots: list) -> tuple[Any, BaseException | None]:
    try:
        operands = [slots[at] for at in transition.operands]
        if transition.perform is call:
            named = {name: slots[at] for name, at in transition.named.items()}
            return call_at(transition.place, operands[0], tuple(operands[1:]), named), None
        return transition.perform(*operands), None
    except BaseException as error:
        return None, error
