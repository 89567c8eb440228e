"""The module ``gc`` while tracing.

gc.collect()        # a graph break: weak references and ``__del__`` show what it frees
"""

from __future__ import annotations

import gc
from typing import Any

from .. import breaks
from .operators import value_kinds


def collect(m: Any, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.OPAQUE_CALL, "gc.collect(), whose effect weak references and __del__ show")


def is_tracked(m: Any, args: tuple, kwargs: dict) -> Any:
    kinds = {type(value) for value in args if id(value) not in m.heap.fresh}
    if kwargs or not kinds <= value_kinds.SIMPLE | {list, set} or any(map(m.heap.origin_of, args)):
        return m.stop(breaks.OPAQUE_CALL, "gc.is_tracked() of an object that is not made here, or of a dict or tuple")
    return m.plainly(gc.is_tracked, *args, **kwargs)


HANDLERS: dict[Any, Any] = {gc.collect: collect, gc.is_tracked: is_tracked}
