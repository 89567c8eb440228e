"""Forward-mode differentiation inside a function: the tangents' operators are part of the graph.

    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, t)              alias = aten.alias(x)
        y = d.sin()                                 sin = aten.sin(alias);  cos = …;  mul = aten.mul(t, cos)
        tangent = forward_ad.unpack_dual(y).tangent                         mul

As in a function transform, a dispatch mode below autograd records the operators (`lowered_calls`), and the calls that
the interpreter has recorded are forgotten. A level is entered and left by two calls of the program, so there is no call
to return to. If the trace ends in between, plain Python goes on inside the level, and the segment is not kept. The next
trace breaks where the level is entered (``Program.capabilities.enters_modes``).

What breaks inside a level is called again, by plain Python. So no call may have drawn random numbers, or changed a
tensor that it has not made itself: such a call breaks before it starts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch.autograd import forward_ad

from ....foundation.torch_private import get_current_dispatch_mode, is_fwd_grad_enabled, set_fwd_grad_enabled
from ... import breaks
from ...engine.break_signals import Stop
from ...numbers.live_scalars import Expression
from .function_transforms import Transform, is_wrapped


class DualLevel(Transform):
    takes_effects = True
    delays_warnings = False

    def __init__(self, m: Any, level: int):
        super().__init__(m, "dual_level", [])
        self.level = level
        self.lowered.repeats_calls = True
        self.has_tangents = ask_for_tangents(m)
        self.lowered.__enter__()

    def will_write(self, target: Any) -> None:
        """Its writes are those of the segment: none has to be undone."""

    def finish(self) -> None:
        """The program has left the level."""
        m, recorder, start = self.m, self.m.recorder, self.start.calls
        self.lowered.__exit__(None, None, None)
        if self.start.has_switched() or m.plainly(is_fwd_grad_enabled) != self.has_tangents:
            self.refuse("a change of a global switch between the start and the end of a dual level")
        made = [value() for value, at in recorder.known.values() if isinstance(at.call, int) and at.call >= start]
        self.forget()
        self.lowered.put_in_place(
            [x for x in made if x is not None and not is_wrapped(x)], keeps_all=False, line=m.user_line()
        )
        m.region = self.outer

    def leave(self) -> None:
        """The trace ends inside the level."""
        if self.m.region is self:
            if get_current_dispatch_mode() is self.lowered:
                self.lowered.__exit__(None, None, None)
            self.m.region = self.outer
            self.m.ends_in_level = True


def enter(m: Any, args: tuple, kwargs: dict) -> Any:
    """``forward_ad.enter_dual_level()``."""
    if not m.capabilities.enters_modes or m.region is not None:
        m.stop(breaks.GLOBAL_SWITCH, "forward-mode differentiation, inside which the graph ends")
    if m.symbolic_sizes is not None:
        m.symbolic_sizes.symbols.settle_all("forward-mode differentiation")
    level = m.plainly(forward_ad.enter_dual_level)
    m.region = DualLevel(m, level)
    return level


def leave(m: Any, args: tuple, kwargs: dict) -> Any:
    """``forward_ad.exit_dual_level(level=None)``."""
    region = m.region
    if not isinstance(region, DualLevel):
        m.stop(breaks.GLOBAL_SWITCH, "the end of forward-mode differentiation")
    m.plainly(forward_ad.exit_dual_level, *args, **kwargs)
    try:
        region.finish()
    except Stop as why:
        m.late(why.kind, why.what, None)


def make(m: Any, args: tuple, kwargs: dict) -> Any:
    return perform(m, forward_ad.make_dual, args, kwargs)


def unpack(m: Any, args: tuple, kwargs: dict) -> Any:
    """``forward_ad.unpack_dual(tensor, level=None)``. Without a level there are no tangents, and torch returns the
    tensor itself: libraries ask so whether one is carried."""
    given = {"tensor": args[0], **kwargs} if len(args) == 1 else kwargs
    is_usual = given.keys() - {"level"} == {"tensor"} and given.get("level") is None
    if is_usual and not isinstance(m.region, DualLevel) and forward_ad._current_level < 0:
        m.guard_outcome(Expression(operator.lt, (Expression(open_level, ()), 0)), True)
        return forward_ad.UnpackedDualTensor(given["tensor"], None)
    return perform(m, forward_ad.unpack_dual, args, kwargs)


def open_level() -> int:
    return forward_ad._current_level


def perform(m: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    if not isinstance(m.region, DualLevel):
        m.stop(breaks.GLOBAL_SWITCH, f"{function.__name__}() outside of a dual level that began here")
    return m.perform(function, *args, **kwargs)


def ask_for_tangents(m: Any, args: tuple = (), kwargs: Any = None) -> bool:
    """Whether forward-mode differentiation is on; guarded unless the program has set it itself."""
    answer = m.plainly(is_fwd_grad_enabled, *args, **(kwargs or {}))
    if not any(call.target is set_fwd_grad_enabled for call in m.recorder.calls):
        m.guard_outcome(Expression(operator.eq, (Expression(is_fwd_grad_enabled, ()), answer)), True)
    return answer
