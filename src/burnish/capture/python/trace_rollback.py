"""Trace rollback: returns to the start of a call that was traced tentatively, as if it had not been traced.

    start = CallStart(m, tensors)          the instruction of the call is the current one
    ...                                    the function is interpreted
    start.go_back(m)

The trace, the global switches and the random number states are restored. The region (`Region`) must prevent all other
side effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ...runtime.eager.eager_activation_checkpointing import RandomState
from .. import breaks
from ..engine.break_signals import Stop
from ..guards.tensor_metadata import global_state, restore_state


class Region:
    """A call that is being traced, and asked before anything changes: a checkpoint, a branch of ``torch.cond``, …"""

    def __init__(self, m: Any):
        self.m, self.outer = m, m.region
        self.made: set[int] = set()
        """Ids of objects that the region has made. No older object has one of these."""

    def meets_another(self) -> None:
        self.refuse("a checkpoint")

    def will_write(self, target: Any) -> None:
        """An object other than a tensor is about to be changed."""
        if not self.may_change(target):
            self.refuse(f"a change of a {type(target).__qualname__}")

    def may_change(self, target: Any) -> bool:
        return id(target) in self.made

    def refuse(self, what: str) -> NoReturn:
        raise Stop(breaks.OPAQUE_CALL, what)

    def after_break(self, signal: Any) -> Any:
        """The signal for what is outside of the region."""
        return signal

    def leave(self) -> None:
        self.m.region = self.outer


def ask_region(method: str, *args: Any) -> Any:
    """Called by functions that are interpreted for a call: a method of the region that is being traced."""


HANDLERS = {ask_region: lambda m, args, kwargs: getattr(m.region, args[0])(*args[1:])}

IN_FRAME = ("pc", "completion", "handling", "spare")


class CallStart:
    def __init__(self, m: Any, tensors: Sequence[Any]):
        """The random number states of the devices of ``tensors``, and of the CPU."""
        self.frame = m.frame
        self.state = [(name, getattr(m.frame, name)) for name in IN_FRAME]
        self.stack = list(m.frame.stack)
        self.mark = m.recorder.mark()
        self.switches = global_state()
        self.random = RandomState(tensors)
        self.generators = len(m.heap.generators)

    @property
    def calls(self) -> int:
        """How many torch calls had been recorded."""
        return self.mark[0]

    def has_switched(self) -> bool:
        return global_state() != self.switches

    def go_back(self, m: Any) -> None:
        forget_generators(m, self.generators)
        restore_state(self.switches)
        self.random.put_back()
        m.recorder.undo_to(self.mark)
        m.recorder.pending_break = None
        at = m.frame
        while at is not None and at is not self.frame:
            at.caller, at = None, at.caller
        m.frame = self.frame
        self.frame.stack[:] = self.stack
        for name, value in self.state:
            setattr(self.frame, name, value)
        m.answer = None


def forget_generators(m: Any, count: int) -> None:
    """Those that were made after the first ``count`` never existed: their ``finally`` blocks do not run when they are
    freed."""
    for reference in m.heap.generators[count:]:
        generator = reference()
        if generator is not None:
            generator.frame = None
    del m.heap.generators[count:]
