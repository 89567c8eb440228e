"""Generators of the module ``random`` that the program makes itself: ``random.Random(3)``.

    generator = random.Random(3)        made for real in the trace; its state follows from the seed
    generator.random()                  a constant: the same in every run

The methods that are Python (``randint``, ``shuffle``, ``choice``) are interpreted down to the three that are C. A
generator from outside has a state that changes between calls, so using it is a break: one for each method, though
``randint`` draws until a number fits.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from types import FunctionType
from typing import Any

from .. import breaks
from ..interpreter.frames import MISSING
from .operators import guard_before_native_read

DRAWS = ("random", "getrandbits", "seed")
SEEDS = (int, float, str, bytes, bool)


def is_own(m: Any, generator: Any) -> bool:
    """Whether the program has made the generator in this trace, from a seed that is a constant."""
    return type(generator) is random.Random and id(generator) in m.random_objects


def construct(m: Any, cls: type, args: tuple, kwargs: dict) -> Any:
    """``random.Random(seed)``; MISSING if it takes its seed from the system, or if that is not a constant."""
    if len(args) != 1 or kwargs:
        return MISSING
    seed = guard_before_native_read.settled(args[0])
    if type(seed) not in SEEDS:
        return MISSING
    made = m.made(m.plainly(random.Random, seed))
    m.random_objects[id(made)] = made
    return made


def call_method(m: Any, generator: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """A method written in C."""
    if name in DRAWS and not is_own(m, generator):
        return m.stop(breaks.RANDOM_CALL, f"call of random.Random.{name}")
    if name not in DRAWS or kwargs:
        return MISSING
    given = [guard_before_native_read.settled(value) for value in args]
    if name == "seed" and (len(given) != 1 or type(given[0]) not in SEEDS):
        return MISSING
    return m.plainly(C_METHODS[name], generator, *given)


def call_python_method(name: str, m: Any, args: tuple, kwargs: dict) -> Any:
    """A method written in Python; MISSING for a generator made here, or of a class of the program."""
    if not args or type(args[0]) is not random.Random or is_own(m, args[0]):
        return MISSING
    return m.stop(breaks.RANDOM_CALL, f"call of random.Random.{name}")


def is_of_numpy(value: Any) -> bool:
    return type(value).__module__ in ("numpy.random.mtrand", "numpy.random._generator")


HANDLERS: dict[Any, Callable] = {
    method: functools.partial(call_python_method, name)
    for name, method in vars(random.Random).items()
    if type(method) is FunctionType and not name.startswith("_")
}
C_METHODS: dict[str, Callable] = {name: getattr(random.Random.__base__, name) for name in DRAWS}
