"""Text and bytes in memory: ``io.StringIO`` and ``io.BytesIO`` objects made by the program are used natively.

    with contextlib.redirect_stdout(io.StringIO()) as shown:
        print(x.shape)                      written into the object: no effect outside
    return shown.getvalue()

Those from outside are a graph break, except for what ``print`` writes to ``sys.stdout`` and ``sys.stderr``.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import MethodDescriptorType
from typing import Any

from .. import breaks
from ..guards.object_sources import Source
from ..interpreter.reads_past_overrides import dict_of
from .attributes.class_lookup import lookup
from .operators import guard_before_native_read

KINDS = (io.StringIO, io.BytesIO)


PLAIN = frozenset((str, bytes, int, bool, type(None)))
"""What streams are given: their methods would run the code of other objects, or read data that is not guarded."""


def make(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    given = [plain_argument(m, value) for value in args]
    named = {name: plain_argument(m, value) for name, value in kwargs.items()}
    return m.made(m.plainly(cls, *given, **named))


def call_method(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if m.heap.origin_of(owner) is not None or type(owner) not in KINDS:
        return m.stop(breaks.OPAQUE_CALL, f"call of _io.{type(owner).__name__}.{name}")
    if _is_patched(owner):
        return m.stop(breaks.OPAQUE_CALL, f"a method of a {type(owner).__name__} that has been given another one")
    if name != "__exit__":  # which leaves the error alone
        args = tuple(
            [plain_argument(m, line) for line in _lines(m, value)] if name == "writelines" else plain_argument(m, value)
            for value in args
        )
        kwargs = {key: plain_argument(m, value) for key, value in kwargs.items()}
    if m.region is not None:
        m.region.will_write(owner)
    return m.plainly(method, *args, **kwargs)


def _is_patched(stream: Any) -> bool:
    """Whether a method of a stream may call one that the program has put on it."""
    return any(hasattr(type(stream), name) for name in stream.__dict__)


def plain_argument(m: Any, value: Any) -> Any:
    value = guard_before_native_read.settled(value)
    if type(value) not in PLAIN:
        m.stop(breaks.OPAQUE_CALL, f"a stream in memory that is given a {type(value).__qualname__}")
    return value


def _lines(m: Any, value: Any) -> list | tuple:
    if type(value) not in (list, tuple):
        m.stop(breaks.OPAQUE_CALL, f"writelines() of a {type(value).__qualname__}")
    m.heap.expose(value)
    return value


def is_made_here(m: Any, stream: Any) -> bool:
    return type(stream) in KINDS and m.heap.fresh.get(id(stream)) is stream


def why_not_print_to(m: Any, stream: Any, source: Source | None) -> str | None:
    """Printing must not run code of the user's. ``source``: where each run finds a stream of ``sys``."""
    kind = type(stream)
    members = dict_of(stream)
    if source is not None:
        m.heap.guard("type", source, kind)
    elif not is_made_here(m, stream):
        return f"print() to a {kind.__qualname__} from outside, which may fail in another call"
    for name in ("write", "flush"):
        if not isinstance(lookup(m, kind, name)[0], MethodDescriptorType) or members is not None and name in members:
            return f"print() to a {kind.__qualname__}"
        if source is not None and members is not None:
            m.heap.guard("absent", source.members, name)
    return None


def build(to: Any, value: Any) -> str:
    """In a template: rebuilt with its text, its position and its attributes."""
    kind, name = type(value), to.name(value, f"{to.constant(type(value))}()")
    if value.closed:
        to.lines.append(f"{name}.close()")
    else:
        text, *rest, _ = value.__getstate__()
        to.do(kind.__setstate__, name, f"({text!r}, {', '.join(map(repr, rest))}, None)")
    to.set_attributes(name, value.__dict__)
    return name
