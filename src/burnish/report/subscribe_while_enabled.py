"""Starts an event listener when a setting first asks for it, and stops it when no thread wants it any more.

    while_wanted(settings.on_change, lambda s: bool(s.show), lambda: show_stages.start(lambda: settings.current().show))

Events cost more with a subscriber, so there is none until a setting asks for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..concurrency import thread_locks
from ..concurrency.outside_errors import reraise_from_outside

Stop = Callable[[], None]


def while_wanted(
    on_change: Callable[[Callable[[Any], None]], Stop], is_wanted: Callable[[Any], bool], start: Callable[[], Stop]
) -> Stop:
    """Keep the listener that ``start`` begins running while the settings of some thread want it. The result ends it for
    good.

    ``on_change`` reports the settings of each thread. The listener itself decides which thread's events it shows.
    """
    wanting: set[int] = set()
    running: list[Stop] = []
    lock = thread_locks.rlock()

    def follow(settings: Any) -> None:
        with lock:
            (wanting.add if is_wanted(settings) else wanting.discard)(threading.get_ident())
            if wanting and not running:
                running.append(start())
            elif running and not wanting:
                running.pop()()

    forget = on_change(follow)

    def stop() -> None:
        forget()
        with lock:
            while running:
                running.pop()()

    return stop


def redraws_lines(stream: Any) -> bool:
    """Whether a carriage return begins the line again: on a terminal, and in a notebook's output."""
    return is_terminal(stream) or type(stream).__module__ == "ipykernel.iostream"


def is_terminal(stream: Any) -> bool:
    """Programs replace `sys.stderr`: by None, by objects with `write` alone, by a closed file."""
    try:
        ask = getattr(stream, "isatty", None)
        return ask is not None and bool(ask())
    except Exception as error:
        reraise_from_outside(error)
        return False
