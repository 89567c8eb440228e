"""Pauses Python's cyclic garbage collector while Burnish captures and compiles.

    with paused() as resume:
        ...
        resume()        # before user code runs inside the block

Capture and the compiler make many small objects, most of which stay alive. The collector would scan each 700 new
ones, which takes a fifth of the time. Sooner or later it would scan all objects of the process, which takes longer
than compiling many a graph.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def paused() -> Iterator[Callable[[], None]]:
    was_on = gc.isenabled()

    def resume() -> None:
        if was_on:
            gc.enable()

    gc.disable()
    try:
        yield resume
    finally:
        resume()
