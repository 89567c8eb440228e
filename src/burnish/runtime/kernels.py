"""Native kernels: machine code in memory, and the cheapest way to call it from Python.

    kernel = bind("add", object_code, "kernel", symbols, buffers=3, cycles=400.0)
    table = kernel.table(x.data_ptr(), y.data_ptr(), z.data_ptr())        once
    kernel.launch(table)                                                  each time: about 0.2 µs and the kernel itself

Machine code comes as the bytes of an object file, from `codegen.llvm` or from a cache. It stays in memory as long as
its NativeKernel does.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from . import forks

LONG = 60_000
"""Cycles from which on native code lets other Python threads run meanwhile: handing the lock over and taking it back
costs some 300, and more where another thread has taken it."""


class NativeKernel:
    """A function in native code that takes a table of addresses: element 0 of each buffer, in order."""

    __slots__ = ("__weakref__", "_owner", "address", "buffers", "cycles", "launch", "name", "object_code")

    def __init__(self, name: str, address: int, buffers: int, cycles: float, object_code: bytes, owner: Any):
        self.name, self.address, self.buffers, self.cycles = name, address, buffers, cycles
        self.object_code = object_code
        self._owner = owner  # keeps the machine code in memory
        self.launch: Callable[[Any], None] = _prototype(cycles, 1)(address)
        """Takes the table: a ctypes array, or its address as an int, which is quicker by 0.1 µs."""

    def table(self, *pointers: int) -> ctypes.Array:
        """A table for `launch`. It may be filled anew between launches; threads need one each."""
        assert len(pointers) == self.buffers, f"{self.name} takes {self.buffers} buffers, not {len(pointers)}"
        return (ctypes.c_void_p * self.buffers)(*pointers)

    def __call__(self, *pointers: int) -> None:
        self.launch(self.table(*pointers))

    def __repr__(self) -> str:
        return f"<NativeKernel {self.name}, {self.buffers} buffers>"


class NativeSequence:
    """Kernels launched one after the other by one call, from one table."""

    __slots__ = ("launch", "slots")

    def __init__(self, runner: int, program: Sequence[int], kernels: Sequence[NativeKernel], slots: int):
        """`runner` is void(program, table), and reads what to call from the program."""
        self.slots = slots
        words = (ctypes.c_uint64 * len(program))(*(word & (1 << 64) - 1 for word in program))
        run = _prototype(sum(kernel.cycles for kernel in kernels), 2)(runner)
        run.kept = (words, tuple(kernels))  # read and called by address, for as long as somebody holds `launch`
        self.launch: Callable[[Any], None] = functools.partial(run, ctypes.addressof(words))
        """Takes the table: a ctypes array, or its address as an int."""

    def table(self, *pointers: int) -> ctypes.Array:
        assert len(pointers) >= self.slots, f"the sequence reads {self.slots} slots, not {len(pointers)}"
        return (ctypes.c_void_p * len(pointers))(*pointers)

    def __call__(self, table: Any) -> None:
        self.launch(table)


def _prototype(cycles: float, arguments: int) -> Any:
    """A foreign function without a result. Short ones keep the interpreter's lock."""
    return (ctypes.CFUNCTYPE if cycles >= LONG else ctypes.PYFUNCTYPE)(None, *[ctypes.c_void_p] * arguments)


def load(object_code: bytes, function: str, symbols: Mapping[str, int]) -> tuple[int, Any]:
    """The address of a function of an object file, and what to hold on to while it is called.

    `symbols` are the functions it calls that are not in it.
    """
    library = llvm.JITLibraryBuilder().add_object_img(object_code).export_symbol(function).add_current_process()
    for name, address in symbols.items():
        library.import_symbol(name, address)
    with _lock:
        tracker = library.link(_linker(), f"burnish{next(_numbers)}")
    return tracker[function], tracker


def bind(name: str, object_code: bytes, function: str, symbols: Mapping[str, int], buffers: int,
         cycles: float) -> NativeKernel:
    address, tracker = load(object_code, function, symbols)
    return NativeKernel(name, address, buffers, cycles, object_code, tracker)


_lock = forks.lock()
_numbers = itertools.count()


@functools.cache
def _linker() -> llvm.LLJIT:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()


def _fork_between_calls() -> None:
    """A fork waits until no other thread is inside of LLVM, so that the child may go on with it. llvmlite has one lock
    around its calls."""
    lock = getattr(ffi.lib, "_lock", None)
    if lock is not None and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.__enter__, after_in_parent=functools.partial(lock.__exit__, None, None, None),
                            after_in_child=functools.partial(lock.__exit__, None, None, None))


_fork_between_calls()
