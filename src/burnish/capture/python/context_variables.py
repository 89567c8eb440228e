"""Context variables: read like attributes; around blocks that stay calls also set and reset, during the trace.

    x * scale.get()              the value is guarded: another context may have another one

    token = collector.set({})
    try:
        hidden = self.blocks(hidden)            none of it is in the graph: after the graph, the variable
    finally:                                    is as it was before
        collector.reset(token)

Compiled blocks read no such variable, so its value is not needed while the graph runs. A variable that is still set at
the end, or was set outside, is not replayed: the code stays plain Python. Elsewhere ``set`` and ``reset`` are breaks,
because a token belongs to one run.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any

from .. import breaks

UNSET = object()


def call(m: Any, variable: ContextVar, method: Any, args: tuple, kwargs: dict) -> Any:
    name, pending = method.__name__, m.set_variables
    if name == "get" and not kwargs and len(args) <= 1:
        if any(token.var is variable for token in pending):
            return variable.get()
        return read(m, variable, args)
    if not m.options.keeps_blocks:
        return m.stop(breaks.OPAQUE_CALL, f"{name} of the context variable {variable.name}")
    if name == "set" and len(args) == 1 and not kwargs:
        token = variable.set(args[0])
        pending.append(token)
        return m.made(token)
    if name == "reset" and pending and args == (pending[-1],) and not kwargs:
        variable.reset(pending.pop())
        return None
    return m.stop(breaks.OPAQUE_CALL, f"{name} of the context variable {variable.name}")


@functools.lru_cache(maxsize=1024)
def reader_of(variable: ContextVar) -> Any:
    """The same function in all traces, so that a number that changes is found again."""
    return functools.partial(variable.get, UNSET)


def read(m: Any, variable: ContextVar, default: tuple) -> Any:
    """The value in this context, or the default of the call, or of the variable."""
    found = m.context_values.get(id(variable))
    if found is None:
        source = m.heap.sources.pin(reader_of(variable)).child("call")
        source.label = variable.name
        value = variable.get(UNSET)
        if value is UNSET:
            m.heap.guard("is", source, UNSET)
        else:
            number = m.heap.changing_number(value, source)
            value = m.heap.admit(value, source) if number is None else number
        found = m.context_values[id(variable)] = variable, value
    if found[1] is not UNSET:
        return found[1]
    return default[0] if default else m.heap.adopt(m.plainly(variable.get))
