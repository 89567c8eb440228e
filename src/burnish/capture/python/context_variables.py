"""Context variables around blocks that stay calls: set, read and reset during the trace.

    token = collector.set({})
    try:
        hidden = self.blocks(hidden)            none of it is in the graph: after the graph, the variable
    finally:                                    is as it was before
        collector.reset(token)

Compiled blocks read no such variable, so its value is not needed while the graph runs. A variable that is still set at
the end, or was set outside, is not replayed: the code stays plain Python.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from .. import breaks


def call(m: Any, variable: ContextVar, method: Any, args: tuple, kwargs: dict) -> Any:
    name, pending = method.__name__, m.set_variables
    if name == "set" and len(args) == 1 and not kwargs:
        token = variable.set(args[0])
        pending.append(token)
        return m.made(token)
    if name == "reset" and pending and args == (pending[-1],) and not kwargs:
        variable.reset(pending.pop())
        return None
    if name == "get" and not kwargs and any(token.var is variable for token in pending):
        return variable.get()
    return m.stop(breaks.OPAQUE_CALL, f"{name} of the context variable {variable.name}")
