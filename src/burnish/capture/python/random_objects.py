"""Generators of the module ``random``.

    generator = random.Random(3)        made for real in the trace; its state follows from the seed
    generator.random()                  a constant: the same in every run
    random.random()                     of a generator from outside: the next number depends on its state

The methods that are Python (``randint``, ``shuffle``, ``choice``) are interpreted down to those that are C. A generator
from outside has another state in nearly each call, so using it is a break. Where breaks are errors its state is guarded
instead, and each state has a graph of its own: later runs draw as many numbers, to leave the same state.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from ..interpreter.frames import MISSING
from ..numbers.live_scalars import Expression
from ..segments.effects import Effect
from .operators import prepare_native_reads

DRAWS = ("random", "getrandbits", "seed")
SEEDS = (int, float, str, bytes, bool)


def is_own(m: Any, generator: Any) -> bool:
    """Whether the program has made the generator in this trace, from a seed that is a constant."""
    return type(generator) is random.Random and m.random_objects.get(id(generator), (None, False))[1]


def construct(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """``random.Random(seed)``; MISSING if it takes its seed from the system, or if that is no constant."""
    if len(args) != 1 or kwargs:
        return MISSING
    seed = prepare_native_reads.settled(args[0])
    if type(seed) not in SEEDS:
        return MISSING
    made = m.made(m.plainly(random.Random, seed))
    m.random_objects[id(made)] = made, True
    return made


def call_method(m: Any, generator: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """A method written in C; MISSING for a generator from outside, where it may be a break."""
    if name not in C_METHODS or kwargs:
        return MISSING
    given = [prepare_native_reads.settled(value) for value in args]
    if name == "seed" and (len(given) != 1 or type(given[0]) not in SEEDS):
        return MISSING
    if is_own(m, generator):
        return m.plainly(C_METHODS[name], generator, *given) if name in DRAWS else MISSING
    if not m.options.fullgraph or m.region is not None or id(generator) in m.heap.fresh:
        return MISSING
    guard_state(m, generator)
    m.heap.expose(given)
    answer = m.plainly(C_METHODS[name], generator, *given)
    if name in WRITES:
        m.effects.append(Effect.of(m, C_METHODS[name], (generator, *given)))
    elif name in DRAWS:
        note_draw(m, generator, 2 if name == "random" else (given[0] + 31) // 32)
    return answer


class State(NamedTuple):
    words: tuple

    def __repr__(self) -> str:
        return "its state in the traced run"


def guard_state(m: Any, generator: Any) -> None:
    if id(generator) in m.random_objects:
        return
    m.random_objects[id(generator)] = generator, False
    origin = m.heap.origin_of(generator)
    source = m.heap.sources.pin(generator) if origin is None else origin.source
    state = State(C_METHODS["getstate"](generator))
    m.heap.guard("outcome", None, (Expression(has_state, (Expression(None, (source,)), state)), True))


def has_state(generator: random.Random, state: State) -> bool:
    return C_METHODS["getstate"](generator) == state.words


def note_draw(m: Any, generator: Any, words: int) -> None:
    last = m.effects[-1] if m.effects else None
    if last is not None and last.function is draw and last.args[0] is generator:
        words += m.effects.pop().args[1]
    m.effects.append(Effect.of(m, draw, (generator, words)))


def draw(generator: random.Random, words: int) -> None:
    """Move a generator on by this number of its 32-bit numbers. Other threads may draw in between, as in eager."""
    C_METHODS["getrandbits"](generator, 32 * words)


WRITES = ("seed", "setstate")
C_METHODS: dict[str, Callable] = {
    name: getattr(random.Random.__base__, name) for name in (*DRAWS, "getstate", "setstate")
}
