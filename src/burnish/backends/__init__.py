"""The backends: what turns a captured graph into something to call.

They stand between capture and the compiler, which do not know each other: capture looks a backend up by name and
hands it a graph. Importing this package registers "burnish", "eager", "aot_eager" and "inductor".

    lookup("eager")(gm, [x, y])(x, y)
"""

from ..compiler import driver
from . import aot_eager, eager, inductor
from .registry import Backend, CompiledFn, CompilerFn, list_backends, lookup, register_backend

__all__ = [
    "Backend",
    "CompiledFn",
    "CompilerFn",
    "aot_eager",
    "driver",
    "eager",
    "inductor",
    "list_backends",
    "lookup",
    "register_backend",
]
