"""Native iterators from outside: an iterator over a builtin container is advanced as part of the trace.

    for layer in self.layers:        # the trace begins behind a break in this loop: its iterator is in a slot
        x = layer(x)

Its next elements are read from ``rest_of(iterator)``, like other outside state, so the guards do not hold the position:
a loop over a break comes back to the same segment. The steps are an effect, ``advance(iterator, n)``.
"""

from __future__ import annotations

import operator
from typing import Any, NoReturn

from .. import breaks
from ..guards.object_sources import Source
from ..guards.read_native_iterators import (
    COMPOSITES,
    ENDLESS,
    LEAVES,
    MOST,
    PAIRS,
    READABLE,
    container_of,
    reads_table,
    rest_of,
)
from ..interpreter.frames import EXHAUSTED
from ..numbers import live_scalars
from ..segments.effects import Effect

MOST_CALLS = 1000
"""From this number of torch calls on, a segment takes no further element of an iterator from outside."""
MOST_SEGMENTS = 4
"""From this number of segments of one continuation on, iterations differ too much to be traced together."""


class Reading:
    """How far an iterator has been read in this trace."""

    __slots__ = ("at", "container", "count", "is_strict", "parts", "rest", "source")

    def __init__(self, m: Any, iterator: Any):
        origin = m.heap.origin_of(iterator)
        assert origin is not None
        self.source: Source = origin.source
        self.at = 0
        self.container: Any = None
        if type(iterator) in LEAVES:
            self.rest = rest_of(iterator)
            if self.rest is None:
                refuse(m, iterator)
            if len(self.rest) and (reads_table(type(iterator)) or type(self.rest) is list):
                container = container_of(iterator)
                if not issubclass(type(container), frozenset):
                    self.container = m.heap.admit(container, self.source.child("container"))
            return
        _, self.parts, *state = iterator.__reduce__()
        self.is_strict = bool(state)
        at = self.source.child("parts")
        if type(iterator) is enumerate:
            self.count = m.heap.admit(self.parts[1], at.item(1), is_slot=True)
            self.parts = self.parts[:1]
        for i, part in enumerate(self.parts):
            m.heap.admit(part, at.item(i))


def refuse(m: Any, iterator: Any) -> NoReturn:
    m.stop(breaks.OUTSIDE_ITERATOR, f"the next element of a {type(iterator).__qualname__}")


def advance(m: Any, iterator: Any) -> Any:
    """The next element of an iterator from outside, or EXHAUSTED. Stops the trace if it cannot be read ahead."""
    if m.region is not None:
        m.region.will_write(iterator)
    if len(m.recorder.calls) >= MOST_CALLS or m.earlier_segments >= MOST_SEGMENTS:
        refuse(m, iterator)
    value = read_next_element(m, iterator)
    found = m.plainly(next, iterator, EXHAUSTED)
    if (found is EXHAUSTED) != (value is EXHAUSTED):
        m.heap.raced = f"{type(iterator).__qualname__}"
    note_step(m, iterator)
    return value


def read_next_element(m: Any, iterator: Any) -> Any:
    """The next element by the records of this trace. A stop leaves the iterator as it is."""
    heap, kind = m.heap, type(iterator)
    if kind not in READABLE or not heap.is_outside_iterator(iterator):
        refuse(m, iterator)
    reading = heap.readings.get(id(iterator))
    if reading is None:
        reading = heap.readings[id(iterator)] = Reading(m, iterator)
    heap.identity_matters.add(kind)
    if kind in COMPOSITES:
        return read_parts(m, iterator, reading)
    if reading.container is not None:
        origin = heap.origin_of(reading.container)
        if origin is None or origin.is_changed_here or heap.changed(origin):
            refuse(m, iterator)
    rest, at = reading.rest, reading.at
    source = reading.source.child("rest")
    if at and len(rest) == MOST and (at == MOST or kind not in ENDLESS):
        refuse(m, iterator)
    if at == len(rest):
        heap.guard("length", source, at)
        return EXHAUSTED
    reading.at += 1
    value, source = rest[at], source.item(at)
    if kind in PAIRS:
        return heap.admit_slot(value[0], source.item(0)), heap.admit_slot(value[1], source.item(1))
    return heap.admit_slot(value, source)


def read_parts(m: Any, iterator: Any, reading: Reading) -> Any:
    values = []
    for part in reading.parts:
        value = read_next_element(m, part)
        if value is EXHAUSTED:
            if reading.is_strict and (
                values or any(read_next_element(m, one) is not EXHAUSTED for one in reading.parts[1:])
            ):
                refuse(m, iterator)  # an error
            return EXHAUSTED
        values.append(value)
    if not values:  # zip()
        return EXHAUSTED
    if type(iterator) is enumerate:
        values.insert(0, live_scalars.apply(operator.add, reading.count, reading.at) if reading.at else reading.count)
        reading.at += 1
    return tuple(values)


def note_step(m: Any, iterator: Any) -> None:
    effects = m.effects
    if effects and effects[-1].function is take_steps and effects[-1].args[0] is iterator:
        last = effects.pop()
        effects.append(last._replace(args=(iterator, last.args[1] + 1)))
    else:
        effects.append(Effect(take_steps, (iterator, 1), {}, len(m.recorder.calls)))


def take_steps(iterator: Any, steps: int) -> None:
    for _ in range(steps):
        next(iterator, None)


take_steps.writes_nothing = True  # type: ignore[attr-defined]
