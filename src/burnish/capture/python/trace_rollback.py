"""Where a call stands that is traced on trial: what it takes to go back there, as if nothing of it had been traced.

    start = CallStart(m, tensors)          the instruction of the call is the current one
    ...                                    the function is interpreted
    start.go_back(m)

The trace, the global switches and the random numbers are put back. What else a trace may do is for its region to keep
from happening: regions are `checkpointing.Region` and `branches.Branch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.eager.checkpoint_recompute import RandomState
from ..guards.tensor_metadata import global_state

IN_FRAME = ("pc", "completion", "handling", "spare")


class CallStart:
    def __init__(self, m: Any, tensors: Sequence[Any]):
        """The random numbers are those of the devices of ``tensors``, and of the CPU."""
        self.frame = m.frame
        self.state = [(name, getattr(m.frame, name)) for name in IN_FRAME]
        self.stack = list(m.frame.stack)
        self.mark = m.recorder.mark()
        self.switches = global_state()
        self.random = RandomState(tensors)

    @property
    def calls(self) -> int:
        """How many torch calls had been written down."""
        return self.mark[0]

    def has_switched(self) -> bool:
        return global_state() != self.switches

    def go_back(self, m: Any) -> None:
        from ..segments.close_segment import restore_state

        restore_state(self.switches)
        self.random.put_back()
        m.recorder.undo_to(self.mark)
        m.recorder.trouble = None
        at = m.frame
        while at is not None and at is not self.frame:
            at.caller, at = None, at.caller
        m.frame = self.frame
        self.frame.stack[:] = self.stack
        for name, value in self.state:
            setattr(self.frame, name, value)
        m.answer = None
