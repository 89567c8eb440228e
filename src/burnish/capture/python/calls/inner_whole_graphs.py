"""Calls of functions that were compiled with ``fullgraph=True``, inside of one that was not.

    @burnish.compile(fullgraph=True)
    def inner(x): ...

    burnish.compile(lambda x: inner(x) + 1)      # one graph; but a break in `inner` is an error

The inner function is interpreted like any other. If the graph ends inside it, each later trace ends before the call:
the function runs by itself then, and decides whether that is a break for it, too. The trace at that moment has begun to
run it, so the error is raised at once where no other rule could apply.
"""

from __future__ import annotations

import weakref
from typing import Any

from ... import breaks
from ...interpreter.frames import PUSHED, Frame, frames_from

ALWAYS = frozenset((breaks.DISABLED_CALL, breaks.GRAPH_BREAK_REQUEST, breaks.FOREIGN_COMPILED, breaks.DATA_BRANCH))
"""Breaks that depend neither on what was written before the call nor on the options of a compiled function."""


class InnerWholeGraphs:
    """Those that one program calls, by the programs that were made for them."""

    def __init__(self) -> None:
        self.entered: weakref.WeakKeyDictionary[Frame, Any] = weakref.WeakKeyDictionary()
        self.broken: weakref.WeakKeyDictionary[Any, breaks.Break] = weakref.WeakKeyDictionary()

    def outermost(self, tracer: Any) -> tuple[Frame, Any] | None:
        """The first frame of the outermost one that is running."""
        found = [(frame, self.entered[frame]) for frame in frames_from(tracer.frame) if frame in self.entered]
        return found[-1] if found else None


def call_inside(m: Any, inner: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """Call ``function``, from which ``inner`` was compiled."""
    if inner is None or not inner.options.fullgraph or m.options.fullgraph:
        return m.call(function, args, kwargs)
    broken = m.capabilities.inner_whole_graphs.broken.get(inner)
    if broken is not None:
        m.stop(broken.kind, f"{broken.what}, in {inner.entry.location.function}, which is compiled with fullgraph=True")
    before = m.frame
    answer = m.call(function, args, kwargs)
    if answer is PUSHED:
        frame = next(frame for frame in frames_from(m.frame) if frame.caller is before)
        m.capabilities.inner_whole_graphs.entered[frame] = inner
    return answer
