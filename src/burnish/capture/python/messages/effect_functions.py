"""Functions that only write: their calls are recorded as side effects, like `print`, and not interpreted.

    loss = self.loss(batch)
    self.log("loss", loss)      # no break: called again, after the graph, on every run
    return loss

Nothing that the program computes depends on such a call, so it is recorded with its arguments as they were at that
moment. It becomes a plain call in three cases: its declaration gives a reason, it raises (an error belongs at its
place), or the program reads what it writes.

Which functions these are is the knowledge of their frameworks: ``integrations`` declares them by name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ... import breaks
from ...interpreter.frames import MISSING, Raised
from ...numbers.live_scalars import plain_of
from ...segments.effects import Effect
from .. import builtin_functions

HAVE_BEEN_READ = ("written values", "read")


@dataclass(frozen=True)
class EffectFunction:
    """A method that takes values and returns None, and the properties that return what it has written.

    why_not: for the arguments of a call, why it is no effect. An empty text: it is interpreted as any other call.
    """

    owner: tuple[str, str]
    """The module and the class."""
    method: str
    readers_owner: tuple[str, str]
    readers: tuple[str, ...]
    why_not: Callable[..., str | None]


_declared: dict[EffectFunction, None] = {}  # whose modules are not loaded yet


def declare(function: EffectFunction) -> None:
    """Record its calls, once its modules are loaded. None is imported here."""
    _declared[function] = None


def register_loaded() -> None:
    """Give the tracer the rules of functions whose modules were loaded since the last call."""
    for function in [*_declared]:
        owner, reader = _loaded(*function.owner), _loaded(*function.readers_owner)
        if owner is not None and reader is not None:
            write = getattr(owner, function.method)
            read = [getattr(vars(reader).get(name), "fget", None) for name in function.readers]
            builtin_functions.PYTHON_FUNCTIONS[write] = functools.partial(_write, function.why_not, write)
            builtin_functions.PYTHON_FUNCTIONS.update(dict.fromkeys(filter(None, read), _read))
            _declared.pop(function, None)


def _loaded(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _write(why_not: Callable[..., str | None], function: Any, m: Any, args: tuple, kwargs: dict) -> Any:
    why = why_not(*args, **kwargs)
    if why == "":
        return MISSING
    if why is not None:
        m.stop(breaks.OPAQUE_FUNCTION, f"{function.__qualname__} {why}")
    if HAVE_BEEN_READ in m.lookups:
        m.stop(breaks.OPAQUE_FUNCTION, f"{function.__qualname__} after a read of what it writes")
    try:
        m.plainly(write_value, function, *args, **kwargs)
    except Raised as raised:
        what = f"{function.__qualname__} raises {type(raised.error).__name__}"
    else:
        m.effects.append(Effect.of(m, write_value, (function, *args), kwargs))
        return None
    return m.stop(breaks.OPAQUE_FUNCTION, what)


def _read(m: Any, args: tuple, kwargs: dict) -> Any:
    """Before the graph runs, what is read lacks the values that this segment writes."""
    if any(effect.function is write_value for effect in m.effects):
        m.stop(breaks.OPAQUE_FUNCTION, "a read of values that were written before it")
    m.lookups[HAVE_BEEN_READ] = True
    return MISSING


def write_value(function: Any, *args: Any, **kwargs: Any) -> None:
    function(*map(plain_of, args), **{name: plain_of(value) for name, value in kwargs.items()})
