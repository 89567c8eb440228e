"""Nested calls: Python functions that native code calls back while a segment is traced are interpreted, too.

    torch.linear(x, weight)            native; its dispatcher calls back
        Quantized.__torch_dispatch__   interpreted in between: its reads are guarded, its torch calls recorded

The interpreter's frames are set aside for the call. If the function breaks the graph, or is about to change something
older than the call, plain Python finishes it, and the caller is told why: what was recorded of it is then forgotten.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .. import breaks
from ..engine.break_signals import Late, Stop
from ..interpreter.argument_binding import frame_for


class NestedRegion:
    """A nested call that is being interpreted. Unlike an effect of the program itself, what it changes could not be
    repeated if the call turned out not to be interpretable: so it must not change anything."""

    def __init__(self, m: Any, given: tuple):
        self.m, self.outer = m, m.region
        self.made: set[int] = set(map(id, given)) | (self.outer.made if self.outer is not None else set())

    def meets_another(self) -> None:
        self.refuse("a checkpoint")

    def will_write(self, target: Any) -> None:
        if id(target) not in self.made:
            self.refuse(f"a change of a {type(target).__qualname__}")

    def will_call(self, function: Any, args: tuple, kwargs: dict) -> None:
        """Torch calls are part of the graph, those that write to tensors as well."""

    def refuse(self, what: str) -> NoReturn:
        raise Stop(breaks.OPAQUE_CALL, what)

    def after_break(self, signal: Any) -> Any:
        return signal

    def leave(self) -> None:
        self.m.region = self.outer


def call_function(function, args):  # type: ignore[no-untyped-def]
    """The function that is interpreted for the call."""
    return function(*args)


def interpret(m: Any, function: Any, args: tuple, given: tuple = ()) -> tuple[Any, str | None]:
    """The result of ``function(*args)``, and why it was not interpreted to its end. ``given``: mutable objects made for
    the call."""
    frame, answer, signals, result = m.frame, m.answer, m.signals, m.result
    calls, inputs = m.recorder.mark()
    try:
        made = frame_for(call_function, [function, args])
        made.depth = m.depth() + 1
        m.frame, m.region = made, NestedRegion(m, given)
        signal = m.trace()
        if signal is None:
            return m.result, None
        if signal.kind is None and isinstance(signal, Late) and signal.error is not None:
            raise signal.error
        assert m.frame is not None
        m.frame.pc -= 1
        m.recorder.forget(calls, inputs)
        machine, _ = m.go_on(m, signal, m.frame)
        machine.step()  # the instruction of the break: the operation may have run already
        return machine.as_plain().run(), signal.what
    finally:
        m.frame, m.answer, m.signals, m.result = frame, answer, signals, result
