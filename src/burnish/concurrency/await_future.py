"""Waiting for a future in the main thread, where an interrupt may arrive.

An interrupt while Python enters a condition leaves it locked, since `Condition.__enter__` is a function in Python. The
thread that does the work, and all that wait for it, would then wait forever.
"""

from __future__ import annotations

import operator
import sys
import threading
from concurrent.futures import Future
from typing import TypeVar

from .outside_errors import came_from_outside

T = TypeVar("T")


class AtomicCondition(threading.Condition):
    """A condition that is entered and left by functions in C, which no interrupt divides."""

    __enter__ = property(operator.attrgetter("_lock.__enter__"))  # type: ignore[assignment]
    __exit__ = property(operator.attrgetter("_lock.__exit__"))  # type: ignore[assignment]


class SharedResult(Future[T]):
    """A future whose waiting threads may be interrupted."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = AtomicCondition()


def result_of(future: Future[T]) -> T:
    """``future.result()``. If an interrupt arrives while Python's condition waits, leaving the condition raises a
    RuntimeError, since its lock is not held. The interrupt is raised instead: the other is taken for a failure."""
    handled = sys.exception()
    try:
        return future.result()
    except RuntimeError as error:
        interrupt = error.__context__
        if interrupt is None or interrupt is handled or not came_from_outside(interrupt):
            raise
        if future.done() and not future.cancelled() and future.exception() is error:
            raise
    raise interrupt
