"""Backends: functions that compile a captured graph into a callable.

They separate capture from the compiler, which do not import each other: capture looks up a backend by name and passes
it a graph. Importing this package registers "burnish", "eager", "aot_eager" and "inductor".

    lookup("eager")(gm, [x, y])(x, y)
"""

from . import aot_eager, burnish, eager, inductor
from .registry import Backend, CompilerFn, list_backends, lookup, register_backend

__all__ = [
    "Backend",
    "CompilerFn",
    "aot_eager",
    "burnish",
    "eager",
    "inductor",
    "list_backends",
    "lookup",
    "register_backend",
]
