"""Looking for garbage waits while we work.

    with paused() as resume:
        ...
        resume()        # where somebody else's code runs before the end

Capture and the compiler make many small objects, most of which stay. Each seven hundred of them would be looked at to
see whether they are garbage, which takes a fifth of the time; and sooner or later all objects of the process would be,
which takes longer than many a graph takes to compile.
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
