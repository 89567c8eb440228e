"""Waiting for a future in the main thread, where an interrupt may arrive."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def result_of(future: Future[T]) -> T:
    """``future.result()``. If an interrupt arrives while Python's condition waits, leaving the condition raises a
    RuntimeError, since its lock is not held. The interrupt is raised instead: the other is taken for a failure."""
    handled = sys.exception()
    try:
        return future.result()
    except RuntimeError as error:
        interrupt = error.__context__
        if interrupt is None or interrupt is handled or isinstance(interrupt, Exception):
            raise
        if future.done() and not future.cancelled() and future.exception() is error:
            raise
    raise interrupt
