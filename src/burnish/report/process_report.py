"""BURNISH_REPORT: a report of the whole run of each process, written when it ends.

stop = start(lambda: settings.current().report)

some/directory/train-4711.html
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..errors import warn


def start(folder: Path, report: Callable[[Path], AbstractContextManager[Any]]) -> Callable[[], None]:
    """Record from now until the process ends, or until the result is called. A forked process writes nothing: the run
    is that of its parent."""
    process = os.getpid()
    try:
        folder = folder.absolute()  # the program may change its directory
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warn(f"burnish: there will be no report: {error}")
        return lambda: None
    name = Path(str(sys.argv[0]) if sys.argv else "").stem or "python"
    running = report(folder / f"{name}-{process}.html")
    running.__enter__()

    def stop() -> None:
        atexit.unregister(stop)
        if os.getpid() == process:
            try:
                running.__exit__(None, None, None)
            except Exception as error:
                warn(f"burnish: there is no report of this process: {type(error).__name__}: {error}")

    atexit.register(stop)
    return stop
