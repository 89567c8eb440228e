"""The module ``gc`` while tracing.

    gc.collect()        # runs here and again on each run, if the program can see nothing of it

What it frees is seen through weak references and ``__del__``. Where the program has made objects with either, the
collection is a graph break, so that it finds them as in eager.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

from .. import breaks
from ..engine.object_lifetimes import WeakOrigin
from ..segments.effects import Effect


def collect_again(*args: int) -> None:
    gc.collect(*args)


collect_again.writes_nothing = True  # type: ignore[attr-defined]


def collect(m: Any, args: tuple, kwargs: dict) -> Any:
    frame = m.frame
    if kwargs or any(type(value) is not int for value in args) or frame.code.opnames[frame.pc] != "POP_TOP":
        return m.stop(breaks.OPAQUE_CALL, "gc.collect(), which returns a number that differs from run to run")
    is_seen = any(type(held) is weakref.ref and id(held()) == key for key, held in m.heap.fresh.items())
    if is_seen or any(isinstance(origin, WeakOrigin) for origin in m.heap.origins.values()):
        return m.stop(breaks.OPAQUE_CALL, "gc.collect() while objects are alive whose end can be seen")
    m.effects.append(Effect.of(m, collect_again, args))
    gc.collect(*args)
    return 0


def is_tracked(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) == 1 and not kwargs and m.heap.origin_of(args[0]) is not None:
        return m.stop(breaks.OPAQUE_CALL, "gc.is_tracked() of an object from outside")
    return m.plainly(gc.is_tracked, *args, **kwargs)


HANDLERS: dict[Any, Any] = {gc.collect: collect, gc.is_tracked: is_tracked}
