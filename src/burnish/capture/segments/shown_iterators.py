"""Builtin iterators that plain Python sees.

    made = map(f, items)
    self.iterators.append(made)      # a list from outside holds it, also while a graph break runs
    print_kind(made)                 # the function at the break gets it

Ours are functions of their state (``frames.BuiltinIterator``), which only the interpreter's frames may hold. Wherever
something else holds one when a segment ends, Python's own iterator takes its place, with the same state.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from types import MethodType
from typing import Any

from ..engine.object_lifetimes import FUNCTION, LEAVES, parts_of_function
from ..interpreter.frames import Frame, Generator, frames_from
from ..interpreter.frames_to_slots import values_of
from ..python.operators.iteration import ITERATORS

MOST_SEARCHED = 4096


def find_shown(tracer: Any, frame: Frame) -> set[int]:
    """Those that are shown when the segment ends before the current instruction of ``frame``."""
    heap = tracer.heap
    made = [reference() for reference in heap.generators]
    ours = [*made, *(each.obj for each in list(heap.origins.values()) if type(each.obj) is Generator)]
    iterators = {id(each) for each in ours if each is not None and each.builtin is not None}
    if not iterators:
        return set()
    held = [value for each in frames_from(frame) if not each.code.is_ours for value in values_of(each)]
    waiting = [value for value in held if type(value) is not Generator]
    waiting += [*operands_of_call(frame), *written(tracer)]
    seen = set(map(id, waiting))
    while waiting and len(seen) < MOST_SEARCHED:
        for part in parts_of(waiting.pop()):
            if id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
    return iterators & seen


def parts_of(value: Any) -> Sequence:
    """Of an iterator of ours, its state. That of one of Python's own cannot be replaced."""
    kind = type(value)
    if kind is Generator:
        frame = value.frame if value.builtin is not None else None
        return () if frame is None else frame.locals[: frame.code.args_total]
    if kind is Frame or kind in ITERATORS or kind.__module__ == "itertools" or issubclass(kind, LEAVES):
        return ()
    return parts_of_function(value) if kind is FUNCTION else referents(value)


def referents(value: Any) -> Sequence:
    """``gc.get_referents``, which from Python 3.13 on does not show the values of an instance's dictionary."""
    found = gc.get_referents(value)
    return [*found, *dict.values(value)] if issubclass(type(value), dict) else found


def operands_of_call(frame: Frame) -> list:
    """What the call at which the segment ends gets, or the owner of an attribute."""
    name, arg = frame.code.opnames[frame.pc], frame.instructions[frame.pc][1]
    if name in ("LOAD_ATTR", "LOAD_METHOD"):
        return frame.stack[-1:]
    if name not in ("CALL", "CALL_KW"):
        return []
    count = (arg[0] if type(arg) is tuple else arg) + (name == "CALL_KW")
    return frame.stack[-count:] if count else []


def written(tracer: Any) -> Iterator[Any]:
    """What outside objects have received."""
    for effect in tracer.effects:
        yield from (*effect.args, *effect.kwargs.values())
    for origin in list(tracer.heap.origins.values()):
        if tracer.heap.changed(origin):
            yield from referents(origin.obj)


def is_shown(to: Any, heap: Any, value: Generator) -> bool:
    """``to``: what replaces the values of a segment. In the frame of an outside generator, the next call may advance
    what it has begun."""
    if value.parts() is None:
        return False
    return id(value) in heap.shown or to.leaves and not (to.is_hidden and value.started)


def as_native(value: Generator) -> Any:
    parts = value.parts()
    return value if parts is None else parts[0](*parts[1])


def bound(function: Any, owner: Any) -> Any:
    """A method of ``Generator``, bound to what may have taken its place."""
    if type(owner) is Generator or vars(Generator).get(getattr(function, "__name__", None)) is not function:
        return MethodType(function, owner)
    return getattr(owner, function.__name__)
