"""Text and bytes in memory: ``io.StringIO`` and ``io.BytesIO`` objects made by the program are used natively.

    with contextlib.redirect_stdout(io.StringIO()) as shown:
        print(x.shape)                      written into the object: no effect outside
    return shown.getvalue()

Those from outside are a graph break, except for what ``print`` writes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import MethodDescriptorType
from typing import Any

from .. import breaks
from ..engine.interpreted_or_native import find_on_type
from .operators import prepare_native_reads

KINDS = (io.StringIO, io.BytesIO)


def make(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    given = [prepare_native_reads.settled(value) for value in args]
    named = {name: prepare_native_reads.settled(value) for name, value in kwargs.items()}
    return m.made(m.plainly(cls, *given, **named))


def call_method(m: Any, owner: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if m.heap.origin_of(owner) is not None or type(owner) not in KINDS:
        return m.stop(breaks.OPAQUE_CALL, f"call of _io.{type(owner).__name__}.{name}")
    if m.region is not None:
        m.region.will_write(owner)
    prepare_native_reads.settle_all(m, (*args, *kwargs.values()))
    m.heap.expose(args)
    return m.plainly(method, *map(prepare_native_reads.settled, args), **kwargs)


def is_made_here(m: Any, stream: Any) -> bool:
    return type(stream) in KINDS and m.heap.fresh.get(id(stream)) is stream


def why_not_print_to(stream: Any) -> str | None:
    """Printing must not run code of the user's."""
    is_native = isinstance(find_on_type(type(stream), "write"), MethodDescriptorType)
    return None if is_native else f"print() to a {type(stream).__qualname__}"


def build(to: Any, value: Any) -> str:
    """In a template: made again with its text and its position."""
    kind, name = type(value), to.name(value, f"{to.constant(type(value))}()")
    if value.closed:
        to.lines.append(f"{name}.close()")
    else:
        text, *rest, _ = value.__getstate__()
        to.lines.append(f"{to.constant(kind.__setstate__)}({name}, ({text!r}, {', '.join(map(repr, rest))}, None))")
    return name
