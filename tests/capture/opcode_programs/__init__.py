"""Small programs that together use every instruction, each run on some arguments.

What is compared is what plain Python does with what the interpreter does; nothing here is about tensors.
"""

from collections.abc import Callable

CASES: list[tuple[Callable, tuple[tuple, ...]]] = []


def case(*calls: tuple):
    """Enter a function with the argument tuples it is run on: one empty tuple, if none is given."""

    def enter(function):
        CASES.append((function, calls or ((),)))
        return function

    return enter


from . import (  # noqa: E402  # the programs enter themselves
    calls,
    classes,
    containers,
    context_managers,
    exceptions,
    generator_delegation,
    generators,
    loops,
    newer_syntax,
    operators,
    pattern_matching,
    variables,
)

__all__ = [
    "CASES",
    "calls",
    "case",
    "classes",
    "containers",
    "generator_delegation",
    "exceptions",
    "generators",
    "loops",
    "context_managers",
    "variables",
    "newer_syntax",
    "operators",
    "pattern_matching",
]
