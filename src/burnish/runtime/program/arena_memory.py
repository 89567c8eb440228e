"""The memory of compiled code between its calls, and what eager has left: neither stays resident for nothing.

    memory = new_arena(size)        and what malloc keeps of memory that eager needed goes back to the system first
    give_back()                     large arenas that nobody uses now lose their pages, not their addresses
    trim()                          what malloc keeps goes back

A program needs one or the other. Malloc keeps what was freed, though, and a frame its arena: without this a process
whose code is compiled has room for eager's intermediates and for its own, twice what eager had.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ...concurrency import fork_safe_locks
from ...concurrency.compute_once import once

LARGE = 32 << 20
"""Bytes. Smaller arenas are not worth the time that the system takes to clear pages."""

DONTNEED = 4
"""Of Linux: the pages go at once, and are zeros when they are touched again."""


class Owner(Protocol):
    """A program."""

    def each_idle_arena(self, do: Callable[[torch.Tensor], object]) -> None:
        """Those in which nothing runs now, nor begins to meanwhile."""
        ...


_lock = fork_safe_locks.rlock()
_made: list[None] = []
_owners: weakref.WeakSet[Any] = weakref.WeakSet()


NOTHING = torch.empty(0, dtype=torch.uint8)
"""The arena of who needs none, a program for a GPU say: a run that makes nothing on the CPU can be a CUDA graph."""


def new_arena(size: int) -> torch.Tensor:
    """Memory in which so many bytes begin at a multiple of 64, as torch's own does."""
    if size == 0:
        return NOTHING
    if size >= LARGE:
        _made.append(None)
        trim()
    memory = torch.empty(size, dtype=torch.uint8)
    return memory if memory.data_ptr() % 64 == 0 else torch.empty(size + 64, dtype=torch.uint8)


def made() -> int:
    """How many large ones so far."""
    return len(_made)


def watch(owner: Owner) -> None:
    """Its arenas are large."""
    with _lock:
        _owners.add(owner)


def give_back() -> bool:
    """Whether there were any."""
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
    """A function of the C library, where it does what is said here."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
