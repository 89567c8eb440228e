"""Calls under torch function modes that the program has entered: their rules are interpreted (`function_modes`).

with Doubled():
    y = torch.sin(x)             Doubled.__torch_function__ is interpreted, without Doubled among the modes
"""

from __future__ import annotations

from typing import Any

from .. import breaks
from .tentative_dispatch_callbacks import NestedRegion


class ModeRegion(NestedRegion):
    """The rule of a mode. It may change older objects: if it breaks, the whole segment is not kept. Inside the rule of
    a tensor subclass, what that rule may change decides."""

    def will_write(self, target: Any) -> None:
        if self.outer is not None:
            super().will_write(target)


def call(m: Any, func: Any, kinds: Any, args: tuple, kwargs: dict | None) -> Any:
    """A call that torch shows to the innermost mode."""
    recorder, entered = m.recorder, [*m.modes]
    mark, seen = recorder.mark(), recorder.seen
    mode = m.modes.pop()
    given = (mode, func, kinds, args) if kwargs is None else (mode, func, kinds, args, kwargs)
    try:
        value, why = m.interpret(call_rule, given, (kwargs,), ModeRegion)
    finally:
        m.modes[:] = entered
    recorder.seen = max(recorder.seen, seen + 1)
    if why is not None:
        recorder.forget(*mark)
        recorder.pending_break = breaks.GLOBAL_SWITCH, f"in the rule of {type(mode).__qualname__}: {why}"
    return value


def call_rule(mode, func, kinds, args, *kwargs):  # type: ignore[no-untyped-def]
    return mode.__torch_function__(func, kinds, args, *kwargs)
