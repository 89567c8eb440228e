"""``eval`` of a text in the calling frame: interpreted like a function of the names that it reads.

    eval("x * scale")        =>      (lambda x: (x * scale))(x), with the globals of the frame

The text must be an expression. One with functions of its own (a lambda, or a comprehension before Python 3.12) stays a
break: their names are looked up in another way. So does a call that gives its own namespaces.
"""

from __future__ import annotations

import functools
from types import CodeType, FunctionType
from typing import Any

from ..interpreter.frame_introspection import frame_locals
from ..interpreter.frames import MISSING

LOOK_AT_FRAMES = frozenset("locals vars dir eval exec super _getframe currentframe".split())
"""Names of what reads the frame that calls it."""


def evaluate(m: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 1 or kwargs or type(args[0]) is not str:
        return MISSING
    names = names_in(args[0])
    if names is None:
        return MISSING
    values = frame_locals(m.frame)
    parameters = tuple(name for name in names if name in values and name.isidentifier())
    code = code_of(args[0], parameters)
    function = FunctionType(code, m.frame.globals)
    m.heap.namespace(m.frame.globals)
    return m.call(function, tuple(values[name] for name in parameters), {})


@functools.lru_cache(maxsize=1024)
def names_in(text: str) -> tuple[str, ...] | None:
    """The names that an expression reads; None if it is not one, or has functions of its own."""
    try:
        code = compile(text.lstrip(" \t"), "<string>", "eval")
    except (SyntaxError, ValueError):
        return None
    if any(isinstance(part, CodeType) for part in code.co_consts) or not LOOK_AT_FRAMES.isdisjoint(code.co_names):
        return None
    return code.co_names


@functools.lru_cache(maxsize=1024)
def code_of(text: str, parameters: tuple[str, ...]) -> CodeType:
    source = f"lambda {', '.join(parameters)}: (\n{text.strip()}\n)"
    made = compile(source, "<string>", "eval")
    return next(part for part in made.co_consts if isinstance(part, CodeType))
