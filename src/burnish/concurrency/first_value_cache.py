"""Computes a value once per process, and returns the same value to every thread.

    @once
    def kernel() -> NativeKernel: ...

`functools.cache` runs the function outside of any lock. Two threads that call it at the same time both run it, and
each returns its own value; the second value replaces the first in the cache. Native code that keeps the address of
the first value then reads freed memory. `once` returns to all threads the value that was stored first.

It takes no lock, so no thread waits, and a forked process finds no lock taken. The function may run more than once:
a value that came second is dropped before any caller sees it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


def once(function: Callable[..., T]) -> functools._lru_cache_wrapper[T]:
    """The arguments are positional and hashable."""
    values: dict[tuple[Hashable, ...], T] = {}

    @functools.cache  # finds a value faster than Python code does, and only ever holds what `values` holds
    @functools.wraps(function)
    def call(*args: Any) -> T:
        return values.setdefault(args, function(*args))  # atomic: the first value stays

    forget = call.cache_clear

    def cache_clear() -> None:
        values.clear()
        forget()

    call.cache_clear = cache_clear
    return call
