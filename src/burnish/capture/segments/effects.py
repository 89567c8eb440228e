"""Side effects: changes that a segment makes to outside objects, replayed in order each time it runs.

Changes of containers and attributes are found at the end, by comparison with the earlier state (``templates``). Calls
made for their effect (``print``, ``warnings.warn``, logging) are kept in order, with their arguments as they were at
that moment. Containers are copied then, and tensors that the segment changes later are cloned in the graph.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple


class Effect(NamedTuple):
    function: Callable
    args: tuple
    kwargs: dict
    position: int  # the number of torch calls recorded before it

    @classmethod
    def of(cls, m: Any, function: Callable, args: tuple, kwargs: dict | None = None) -> Effect:
        keep: Callable = lambda value: frozen(m, value)  # noqa: E731
        return cls(
            function, tuple(map(keep, args)), {k: keep(v) for k, v in (kwargs or {}).items()}, len(m.recorder.calls)
        )


def frozen(m: Any, value: Any) -> Any:
    """A copy of the containers in ``value``, unaffected by later changes."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset, collections.deque):
        return kind(frozen(m, v) for v in value)
    if kind is dict and "__name__" not in value:  # a module's globals are passed without a copy
        return {k: frozen(m, v) for k, v in value.items()}
    return value
