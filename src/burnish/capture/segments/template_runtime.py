"""Runtime functions of templates: rebuild Python objects at the end of a segment."""

from __future__ import annotations

import collections
import functools
import types
from typing import Any

from ..guards.read_native_iterators import without_warning
from ..interpreter.frames import Frame, Generator


def refill(kind: Any, container: Any, items: list) -> None:
    """Replace the whole content of ``container`` by ``items``, without calling methods of a subclass."""
    kind.clear(container)
    if kind is set:
        set.update(container, items)
    elif kind is collections.deque:
        collections.deque.extend(container, items)
    else:
        for key, value in items:
            kind.__setitem__(container, key, value)


def attributes_of_partial(value: functools.partial) -> dict | None:
    """None if it has no dictionary yet. Reading `__dict__` would create one, and from then on a partial of this partial
    is nested instead of flat."""
    return functools.partial.__reduce__(value)[2][3]  # type: ignore[index]


def generator_shell(name: str, qualname: str, code: types.CodeType, started: bool) -> Generator:
    made = Generator.__new__(Generator)
    made.__name__, made.__qualname__, made.code = name, qualname, code
    made.started, made.running, made.frame, made.noted_by = started, False, None, None
    return made


def set_state(iterator: Any, state: Any) -> None:
    without_warning(iterator, iterator.__setstate__, state)


def suspend_generator(generator: Generator, frame: Frame | None, started: bool) -> None:
    generator.frame, generator.running, generator.started = frame, False, started


def link_generator(generator: Generator, frame: Frame) -> None:
    generator.frame = frame  # a suspended frame does not refer to its generator: Python closes it without a holder


def make_frame(code: Any, namespace: dict, builtins: dict, pc: int, values: list, stack: list, handling: Any) -> Frame:
    frame = Frame(code, namespace, builtins, values)
    frame.pc, frame.stack, frame.handling = pc, stack, handling
    return frame
