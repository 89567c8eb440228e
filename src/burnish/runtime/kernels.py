"""Native kernels: machine code in memory, and the cheapest way to call it from Python.

    kernel = load(object_code, "kernel", symbols, ...)
    table = kernel.table(x.data_ptr(), y.data_ptr())       once
    kernel.launch(table)                                   each time: about 0.2 µs and the kernel itself

Machine code comes as the bytes of an object file, from `codegen.llvm` or from a cache. It stays in memory as long as
its NativeKernel does.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import llvmlite.binding as llvm

LONG = 60_000
"""Cycles from which on a kernel lets other Python threads run meanwhile; handing the lock over costs about 300."""

_releasing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_holding = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class NativeKernel:
    """A function in native code that takes a table of addresses: element 0 of each buffer, in order."""

    __slots__ = ("__weakref__", "_owner", "address", "buffers", "cycles", "launch", "name", "object_code")

    def __init__(self, name: str, address: int, buffers: int, cycles: float, object_code: bytes, owner: Any):
        self.name, self.address, self.buffers, self.cycles = name, address, buffers, cycles
        self.object_code = object_code
        self._owner = owner  # keeps the machine code in memory
        self.launch: Callable[[Any], None] = (_releasing if cycles >= LONG else _holding)(address)
        """Takes the table: a ctypes array, or its address as an int, which is quicker by 0.1 µs."""

    def table(self, *pointers: int) -> ctypes.Array:
        """A table for `launch`. It may be filled anew between launches; threads need one each."""
        assert len(pointers) == self.buffers, f"{self.name} takes {self.buffers} buffers, not {len(pointers)}"
        return (ctypes.c_void_p * self.buffers)(*pointers)

    def __call__(self, *pointers: int) -> None:
        self.launch(self.table(*pointers))

    def __repr__(self) -> str:
        return f"<NativeKernel {self.name}, {self.buffers} buffers>"


def load(object_code: bytes, function: str, symbols: Mapping[str, int]) -> tuple[int, Any]:
    """The address of a function of an object file, and what to hold on to while it is called.

    `symbols` are the functions it calls that are not in it.
    """
    library = llvm.JITLibraryBuilder().add_object_img(object_code).export_symbol(function)
    for name, address in symbols.items():
        library.import_symbol(name, address)
    with _lock:
        tracker = library.link(_linker(), f"burnish{next(_numbers)}")
    return tracker[function], tracker


def bind(name: str, object_code: bytes, function: str, symbols: Mapping[str, int], buffers: int, cycles: float,
         keep: Iterable[Any] = ()) -> NativeKernel:
    address, tracker = load(object_code, function, symbols)
    return NativeKernel(name, address, buffers, cycles, object_code, (tracker, *keep))


_lock = threading.Lock()
_numbers = itertools.count()
_the_linker: list[llvm.LLJIT] = []


def _linker() -> llvm.LLJIT:
    if not _the_linker:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        _the_linker.append(llvm.create_lljit_compiler())
    return _the_linker[0]
