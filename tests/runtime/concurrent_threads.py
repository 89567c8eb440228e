"""Runs functions in threads that start at the same moment.

at_once(lambda: compiled(x), lambda: compiled(y))      the results in order; an error of any thread is raised
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

PATIENCE = 120.0
"""Seconds after which threads that still run are taken to be stuck."""


def at_once(*works: Callable[[], Any]) -> list[Any]:
    results: list[Any] = [None] * len(works)
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def run(k: int) -> None:
        try:
            barrier.wait(PATIENCE)
            results[k] = works[k]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    if errors:
        raise errors[0]
    return results
