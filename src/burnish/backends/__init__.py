"""The backends: what turns a captured graph into something to call.

They stand between capture and the compiler, which do not know each other: capture looks a backend up by name and
hands it a graph. Importing this package registers "burnish", "eager", "aot_eager" and "inductor".

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
