"""Allocate arenas, and return the memory of idle arenas and of malloc to the system.

    memory = new_arena(size)        first returns memory that malloc keeps from eager to the system
    give_back()                     frees the pages of large idle arenas, not their addresses
    trim()                          returns free memory that malloc keeps

A program needs either eager's memory or an arena. But malloc keeps freed memory, and a frame keeps its arena.
Without this module, a process with compiled code would hold both: twice the memory of eager.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ...concurrency import thread_locks
from ...concurrency.first_value_cache import once

LARGE = 32 << 20
"""Bytes. Returning smaller arenas is not worth the system's time to clear pages."""

DONTNEED = 4
"""Linux's MADV_DONTNEED: frees the pages at once; they read as zeros when touched again."""


class Owner(Protocol):
    """A program."""

    def each_idle_arena(self, do: Callable[[torch.Tensor], object]) -> None:
        """Call `do` for each arena in which nothing runs; no run starts in it during the call."""
        ...


_lock = thread_locks.rlock()
_made: list[None] = []
_owners: weakref.WeakSet[Any] = weakref.WeakSet()


NOTHING = torch.empty(0, dtype=torch.uint8)
"""The arena of programs that need none, such as those for a GPU: a run that makes nothing on the CPU can be a CUDA
graph."""


def new_arena(size: int) -> torch.Tensor:
    """Memory in which `size` bytes start at a multiple of 64, like torch's own."""
    if size == 0:
        return NOTHING
    if size >= LARGE:
        _made.append(None)
        trim()
    memory = torch.empty(size, dtype=torch.uint8)
    return memory if memory.data_ptr() % 64 == 0 else torch.empty(size + 64, dtype=torch.uint8)


def count_large_arenas() -> int:
    """The number of large arenas so far."""
    return len(_made)


def watch(owner: Owner) -> None:
    """Register an owner of large arenas."""
    with _lock:
        _owners.add(owner)


def give_back() -> bool:
    """Returns whether there were any."""
    advise = _system("madvise")
    found: list[torch.Tensor] = []

    def drop(arena: torch.Tensor) -> None:
        start, size = arena.data_ptr(), arena.numel()
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (start + size) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if advise is not None and advise(ctypes.c_void_p(first), ctypes.c_size_t(length), DONTNEED) == 0:
            found.append(arena)

    with _lock:
        owners = list(_owners)
    for owner in owners:
        owner.each_idle_arena(drop)
    return bool(found)


def trim() -> None:
    release = _system("malloc_trim")
    if release is not None:
        release(ctypes.c_size_t(0))


@once
def _system(name: str) -> Callable[..., int] | None:
    """A function of the C library, on the systems where it behaves as described here."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
