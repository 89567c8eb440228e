"""Starts a listener when a setting first asks for it, and ends it when none does any longer.

    while_wanted(settings.on_change, lambda s: bool(s.show), lambda: show.start(lambda: settings.current().show))

Events cost more where somebody listens, so nobody does until asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Stop = Callable[[], None]


def while_wanted(
    on_change: Callable[[Callable[[Any], None]], Stop], is_wanted: Callable[[Any], bool], start: Callable[[], Stop]
) -> Stop:
    """Keep what ``start`` begins running while the settings of some thread want it. The result ends it for good.

    ``on_change`` tells in each thread what holds there; which events are for which thread is the listener's matter.
    """
    wanting: set[int] = set()
    running: list[Stop] = []
    lock = threading.RLock()

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
