"""ELF linker for x86-64 Linux: load object code into memory and apply its relocations.

    linked = link(object_code, {"torch_parallel_for": 0x7f…})
    linked.address_of("kernel")                valid while `linked` is alive

Object files from the code generator need few relocations: 64-bit addresses of their own constants and functions, and
of the external functions they call. Applying them takes some tens of microseconds; loading a linker library takes
fifteen milliseconds. `link` returns None for anything else, and LLVM's linker is used.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Mapping
from typing import Any

from ...concurrency.first_value_cache import once

HEADER, SECTION, SYMBOL, RELOCATION = (
    struct.Struct(form) for form in ("<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ", "<QQq")
)
MAGIC = b"\x7fELF\2\1\1"
"""64 bits, little-endian."""

OBJECT_FILE, X86_64 = 1, 62
SYMBOLS, RELOCATIONS, NOBITS, RELOCATIONS_WITHOUT_ADDENDS = 2, 4, 8, 9
WRITTEN, LOADED, THREADS = 1, 2, 0x400
ABSOLUTE_64, RELATIVE_32, RELATIVE_64 = 1, 2, 24
"""Kinds of relocation: a symbol's address; its distance from here, in 32 or 64 bits."""

VISIBLE_FUNCTION = 0x12

OUTSIDE = 0
"""The section of a symbol that is not defined in this file."""

LARGEST_ALIGNMENT = mmap.PAGESIZE


class MappedCode:
    """Code in memory of its own, which is read-only from now on."""

    __slots__ = ("__weakref__", "_view", "functions")

    def __init__(self, functions: dict[str, int], view: Any):
        self.functions = functions
        self._view = view  # keeps the memory alive

    def address_of(self, function: str) -> int:
        return self.functions[function]


def link(object_code: bytes, symbols: Mapping[str, int]) -> MappedCode | None:
    if not is_supported():
        return None
    try:
        return _link(object_code, symbols)
    except (Unknown, struct.error, IndexError, ValueError, OSError):
        return None


class Unknown(Exception):
    """Something in an object file that this linker does not support."""


@once
def is_supported() -> bool:
    return sys.platform == "linux" and os.uname().machine == "x86_64" and ctypes.sizeof(ctypes.c_void_p) == 8


def _link(code: bytes, symbols: Mapping[str, int]) -> MappedCode:
    sections = _sections(code)
    places, size = _places(sections)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    view = (ctypes.c_char * size).from_buffer(memory)
    base = ctypes.addressof(view)
    for at, place in places.items():
        _, what, _, _, offset, length, *_ = sections[at]
        if what != NOBITS:
            memory[place : place + length] = code[offset : offset + length]
    table = LoadedSymbols(code, sections, {at: base + place for at, place in places.items()}, symbols)
    for _, what, _, _, offset, length, _, of, _, _ in sections:
        if of not in places or what not in (RELOCATIONS, RELOCATIONS_WITHOUT_ADDENDS):
            continue
        if what == RELOCATIONS_WITHOUT_ADDENDS:
            raise Unknown
        end = places[of] + sections[of][5]
        for at, info, addend in RELOCATION.iter_unpack(code[offset : offset + length]):
            value = table.address(info >> 32) + addend
            _put_in(memory, places[of] + at, end, info & 0xFFFFFFFF, value, base)
    functions = table.functions()
    protect = _protect()
    if protect is None or protect(base, size, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise Unknown
    return MappedCode(functions, view)


class LoadedSymbols:
    """The addresses of an object file's functions and constants once loaded."""

    def __init__(
        self, code: bytes, sections: list[tuple[int, ...]], places: Mapping[int, int], outside: Mapping[str, int]
    ):
        table = next((section for section in sections if section[1] == SYMBOLS), None)
        if table is None:
            raise Unknown
        self.code, self.places, self.outside = code, places, outside
        self.names = sections[table[6]][4]
        self.symbols = list(SYMBOL.iter_unpack(code[table[4] : table[4] + table[5]]))

    def name(self, k: int) -> str:
        start = self.names + self.symbols[k][0]
        return self.code[start : self.code.index(b"\0", start)].decode()

    def address(self, k: int) -> int:
        _, _, _, section, value, _ = self.symbols[k]
        if section == OUTSIDE:
            name = self.name(k)
            return self.outside.get(name) or _in_process(name)
        if section not in self.places:
            raise Unknown
        return self.places[section] + value

    def functions(self) -> dict[str, int]:
        """The functions that are visible outside."""
        return {
            self.name(k): self.address(k)
            for k, (_, info, _, section, _, _) in enumerate(self.symbols)
            if section in self.places and info == VISIBLE_FUNCTION
        }


def _sections(code: bytes) -> list[tuple[int, ...]]:
    magic, kind, machine, _, _, _, at, _, _, _, _, size, count, _ = HEADER.unpack_from(code)
    if not magic.startswith(MAGIC) or kind != OBJECT_FILE or machine != X86_64 or size != SECTION.size:
        raise Unknown
    sections = list(SECTION.iter_unpack(code[at : at + size * count]))
    if len(sections) != count or any(
        what != NOBITS and offset + length > len(code) for _, what, _, _, offset, length, *_ in sections
    ):
        raise Unknown
    return sections


def _places(sections: list[tuple[int, ...]]) -> tuple[dict[int, int], int]:
    """The offset of each section to load, and the total size."""
    places: dict[int, int] = {}
    size = 0
    for at, (_, _, flags, _, _, length, _, _, alignment, _) in enumerate(sections):
        if flags & LOADED and length:
            if flags & (WRITTEN | THREADS) or alignment > LARGEST_ALIGNMENT:
                raise Unknown  # writable variables: the code generator makes none
            size += -size % max(alignment, 1)
            places[at] = size
            size += length
    if not size:
        raise Unknown
    return places, size


def _put_in(memory: mmap.mmap, at: int, end: int, kind: int, value: int, base: int) -> None:
    """Write one address at `at` bytes after `base`; writes must end before `end`."""
    width = 4 if kind == RELATIVE_32 else 8
    if kind != ABSOLUTE_64:
        value -= base + at
    if (
        kind not in (ABSOLUTE_64, RELATIVE_32, RELATIVE_64)
        or at + width > end
        or kind == RELATIVE_32
        and not -1 << 31 <= value < 1 << 31
    ):
        raise Unknown
    memory[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")


@once
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _in_process(name: str) -> int:
    """A function of a loaded library, such as memset."""
    try:
        return ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise Unknown from None


@once
def _protect() -> Any:
    found = getattr(_process(), "mprotect", None)
    if found is not None:
        found.argtypes, found.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return found
