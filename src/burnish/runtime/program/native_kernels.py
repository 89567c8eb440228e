"""Native kernels: machine code in memory, launched from Python with little overhead.

    kernel = bind("add", object_code, "kernel", symbols, buffers=3, cycles=400.0)
    table = kernel.table(x.data_ptr(), y.data_ptr(), z.data_ptr())        once
    kernel.launch(table)                                                  each time: about 0.2 µs and the kernel itself

Machine code comes as the bytes of an object file, from `codegen.llvm` or from a cache. It stays in memory as long as
its NativeFunction. Nothing here is identified by its address only: code, and the words that it reads, can be
serialized and rebuilt elsewhere (`compiler.program_serialization`).
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...concurrency import thread_locks
from ..linking import elf_linker

LONG = 60_000
"""From this many cycles on, native code releases the GIL. Releasing and taking it again costs some 300 cycles, and more
where another thread has taken it."""


class NativeFunction:
    """Machine code in memory, and the object file that it comes from."""

    __slots__ = ("__weakref__", "_linked", "address", "object_code", "symbol")

    def __init__(self, linked: Any, object_code: bytes, symbol: str):
        self.address, self.object_code, self.symbol = linked.address_of(symbol), object_code, symbol
        self._linked = linked  # keeps the machine code in memory


class Words:
    """An array of 64-bit numbers that native code reads. A word that is a function, or other words, holds their
    address."""

    __slots__ = ("_memory", "address", "numbers")

    def __init__(self, numbers: Sequence[int | Words | NativeFunction]):
        self.numbers = tuple(numbers)  # also keeps what the addresses refer to alive
        self._memory = (ctypes.c_int64 * max(len(self.numbers), 1))(*map(word, self.numbers))
        self.address = ctypes.addressof(self._memory)


def word(number: int | Words | NativeFunction) -> int:
    return number if isinstance(number, int) else number.address


class NativeKernel:
    """A function in native code that takes a table of addresses: element 0 of each buffer, in order."""

    __slots__ = ("__weakref__", "buffers", "cycles", "function", "launch", "name")

    def __init__(self, name: str, function: NativeFunction, buffers: int, cycles: float):
        self.name, self.function, self.buffers, self.cycles = name, function, buffers, cycles
        self.launch: Callable[[Any], None] = _prototype(cycles, 1)(function.address)
        """Takes the table: a ctypes array, or its address as an int, which is faster by 0.1 µs."""

    @property
    def address(self) -> int:
        return self.function.address

    def table(self, *pointers: int) -> ctypes.Array:
        """A table for `launch`. It may be refilled between launches; each thread needs its own."""
        assert len(pointers) == self.buffers, f"{self.name} takes {self.buffers} buffers, not {len(pointers)}"
        return (ctypes.c_void_p * self.buffers)(*pointers)

    def __call__(self, *pointers: int) -> None:
        self.launch(self.table(*pointers))

    def __repr__(self) -> str:
        return f"<NativeKernel {self.name}, {self.buffers} buffers>"


class NativeSequence:
    """Kernels launched one after the other by one call, from one table."""

    __slots__ = ("launch", "slots")

    def __init__(self, runner: NativeFunction, steps: Sequence[tuple[NativeKernel, Sequence[Operand]]]):
        """`runner` is void(program, table). The program is the maximal number of operands of a step. Then for each
        step: its function, its number of operands, and for each operand its slot and a byte offset. Then 0."""
        program: list[int | Words | NativeFunction] = [max((len(operands) for _, operands in steps), default=0) or 1]
        most = -1
        for kernel, operands in steps:
            assert len(operands) == kernel.buffers, f"{kernel.name} takes {kernel.buffers} buffers, not {len(operands)}"
            program += [kernel.function, len(operands)]
            for operand in operands:
                slot, behind = (operand, 0) if isinstance(operand, int) else operand
                program += [slot, behind]
                most = max(most, slot)
        program.append(0)
        self.slots = most + 1
        words = Words(program)
        run = _prototype(sum(kernel.cycles for kernel, _ in steps), 2)(runner.address)
        run.kept = (words, runner)  # read and called by address, while `launch` is alive
        self.launch: Callable[[Any], None] = functools.partial(run, words.address)
        """Takes the table: a ctypes array, or its address as an int."""

    def table(self, *pointers: int) -> ctypes.Array:
        assert len(pointers) >= self.slots, f"the sequence reads {self.slots} slots, not {len(pointers)}"
        return (ctypes.c_void_p * len(pointers))(*pointers)

    def __call__(self, table: Any) -> None:
        self.launch(table)


def separate_launches(launch: Callable[[Any], None]) -> list[Callable[[Any], None]]:
    """For each kernel of a sequence a launch of its own, which takes the same table. A single kernel's is itself."""
    if not isinstance(launch, functools.partial):
        return [launch]
    words, runner = launch.func.kept
    numbers, at, found = words.numbers, 1, []
    while numbers[at] != 0:
        end = at + 2 + 2 * numbers[at + 1]
        program = Words([numbers[0], *numbers[at:end], 0])
        run: Any = type(launch.func)(runner.address)
        run.kept = (program, runner)
        found.append(functools.partial(run, program.address))
        at = end
    return found


def _prototype(cycles: float, arguments: int) -> Any:
    """A foreign function without a result. Short ones keep the GIL."""
    return (ctypes.CFUNCTYPE if cycles >= LONG else ctypes.PYFUNCTYPE)(None, *[ctypes.c_void_p] * arguments)


Operand = int | tuple[int, int | Words]
"""A slot of the table, or a slot and a byte offset from its address."""


def load(object_code: bytes, function: str, symbols: Mapping[str, int]) -> NativeFunction:
    """A function of an object file. `symbols` are the external functions it calls.

    Recently linked functions are cached; a function is linked again only after its eviction.
    """
    key = (function, object_code, tuple(symbols.items()))
    with _lock:
        found = _recent.get(key)
        if found is not None:
            _recent.move_to_end(key)
            return found
    with _lock:
        linked: Any = _linked.get(key[1:])
    if linked is None:
        linked = elf_linker.link(object_code, symbols)
    if linked is None or function not in linked.functions:
        from ..linking import llvm_linker

        linked = llvm_linker.link(object_code, function, symbols)
    with _lock:
        if isinstance(linked, elf_linker.MappedCode):
            _linked[key[1:]] = linked
        found = _recent.setdefault(key, NativeFunction(linked, object_code, function))  # another thread was first
        if len(_recent) > MOST_RECENT:
            _recent.popitem(last=False)
    return found


def bind(
    name: str, object_code: bytes, function: str, symbols: Mapping[str, int], buffers: int, cycles: float
) -> NativeKernel:
    return NativeKernel(name, load(object_code, function, symbols), buffers, cycles)


MOST_RECENT = 256
_lock = thread_locks.lock()
_recent: OrderedDict[tuple, NativeFunction] = OrderedDict()
_linked: weakref.WeakValueDictionary[tuple, elf_linker.MappedCode] = weakref.WeakValueDictionary()
"""Object files in memory: several functions may be in one."""
