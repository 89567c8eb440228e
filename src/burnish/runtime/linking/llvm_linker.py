"""LLVM's JIT linker, for object files that `elf_linker` does not support: other processors, other systems.

    found = link(object_code, "kernel", {"torch_parallel_for": 0x7f…})
    found.address_of("kernel")

LLVM leaks some ten kilobytes for every link, even after the code is freed.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Mapping
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from ...concurrency import thread_locks
from ...concurrency.first_value_cache import once


class JitCode:
    __slots__ = ("_tracker",)

    def __init__(self, tracker: Any):
        self._tracker = tracker  # keeps the machine code in memory

    def address_of(self, function: str) -> int:
        return self._tracker[function]


def link(object_code: bytes, function: str, symbols: Mapping[str, int]) -> JitCode:
    library = llvm.JITLibraryBuilder().add_object_img(object_code).export_symbol(function).add_current_process()
    for name, address in symbols.items():
        library.import_symbol(name, address)
    fork_between_calls()
    with _lock:
        return JitCode(library.link(_linker(), f"burnish{next(_numbers)}"))


_lock = thread_locks.lock()
_numbers = itertools.count()


@once
def _linker() -> llvm.LLJIT:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()


@once
def fork_between_calls() -> None:
    """Make a fork wait until no other thread is inside LLVM, so that the child can use it. llvmlite has one lock around
    its calls."""
    lock = getattr(ffi.lib, "_lock", None)
    if lock is not None and hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.__enter__,
            after_in_parent=functools.partial(lock.__exit__, None, None, None),
            after_in_child=functools.partial(lock.__exit__, None, None, None),
        )
