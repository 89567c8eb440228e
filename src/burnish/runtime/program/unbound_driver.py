"""A driver before it is bound to memory: source text, tables and the functions it calls, ready for serialization.

    draft = write_driver(plan, kernels, constants)          codegen
    program = draft.program(compile_sequence)
    forward, backward = paired_programs([draft, other], compile_sequence)

It contains no address, so it can be written to disk and made a program in another process
(`compiler.program_serialization`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ...foundation.torch_private import OpOverload, VariableFunctions
from . import arena_memory
from .call_origins import CallOrigins
from .native_call_sequence import Entry, Fixed, InArena, Join, NativeCalls
from .native_kernels import word
from .program import LinkedProgram, PairedProgram


class FunctionOf:
    """A function that can be found again as an attribute of its owner."""

    __slots__ = ("attribute", "owner")

    def __init__(self, owner: Any, attribute: str):
        self.owner, self.attribute = owner, attribute

    def __repr__(self) -> str:
        return f"{self.attribute} of {self.owner}"


def called(things: Mapping[str, Any]) -> dict[str, Any]:
    """The functions and values that the driver's text uses, by name."""
    return {
        name: getattr(thing.owner, thing.attribute) if isinstance(thing, FunctionOf) else straight(thing)
        for name, thing in things.items()
    }


def straight(thing: Any) -> Any:
    """Torch's own function for an operator that takes the same arguments: its C++ argument parser is specific to it and
    takes half the time (a microsecond less for each call)."""
    if isinstance(thing, OpOverload) and thing.namespace == "aten":
        return STRAIGHT.get(str(thing), thing)
    return thing


STRAIGHT: dict[str, Any] = {
    f"aten.{name}.{overload}": getattr(VariableFunctions, name)
    for name in ("addmm", "addmv", "baddbmm", "bmm", "cat", "mm", "mv")
    for overload in ("default", "out")
}
STRAIGHT["aten.convolution.default"] = VariableFunctions.convolution


class ArenaView(NamedTuple):
    """A tensor in the arena, `offset` elements after its start."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class ArenaElement(NamedTuple):
    """One element in the arena, which the driver reads as a Python number."""

    dtype: torch.dtype
    offset: int
    """In bytes."""


ELEMENT_KINDS: dict[torch.dtype, Any] = {
    torch.float64: ctypes.c_double,
    torch.float32: ctypes.c_float,
    torch.int64: ctypes.c_int64,
    torch.int32: ctypes.c_int32,
    torch.int16: ctypes.c_int16,
    torch.int8: ctypes.c_int8,
    torch.uint8: ctypes.c_uint8,
}
"""The C types of elements that the driver reads without torch, which takes microseconds for each."""


class UnboundDriver(NamedTuple):
    source: str
    things: dict[str, Any]
    """What the text uses, by name, except for the native calls."""
    launches: dict[str, NativeCalls]
    """By the name of the function; the frame has a table for each, numbered in this order."""
    arena: int
    """Bytes."""
    views: dict[str, ArenaView]
    numbers: dict[str, torch.dtype]
    """Slots of the frame from which kernels read a number."""
    elements: dict[str, ArenaElement]
    """Slots of the frame from which the driver reads a number that a kernel has stored."""
    takes: tuple[int, ...] | None = None
    """The inputs that the driver takes, where it does not take all; the others it needs are bound."""
    binds: tuple[int, ...] = ()
    """The inputs that `bind` takes."""
    origins: CallOrigins | None = None

    def program(self, join: Join) -> LinkedProgram:
        """`join` makes one native function of several."""
        namespace = namespace_of(self, {name: calls.launch(join) for name, calls in self.launches.items()})
        made = LinkedProgram(self.source, namespace, self.frame_maker(), self.takes, self.binds)
        if self.arena >= arena_memory.LARGE:
            arena_memory.watch(made)
        return made

    def frame_maker(self) -> Callable[..., Any]:
        """A function that makes a frame, in a new arena or in the given one."""
        arena_bytes, views, elements = self.arena, self.views, self.elements
        tables: list[list[Entry]] = [calls.table() for calls in self.launches.values()]
        frame_class, set_numbers = frame_class_of(self, ["arena", "bound", *views, *elements])

        def make(arena: torch.Tensor | None = None) -> Any:
            frame: Any = frame_class()
            frame.bound = None
            frame.arena = arena_memory.new_arena(arena_bytes) if arena is None else arena
            start = -frame.arena.data_ptr() % 64
            base = frame.arena.data_ptr() + start
            for name, view in views.items():
                whole = frame.arena[start : start + arena_bytes // 16 * 16].view(view.dtype)
                setattr(
                    frame, name, torch.as_strided(whole, view.shape, view.stride, whole.storage_offset() + view.offset)
                )
            for name, element in elements.items():
                setattr(frame, name, ELEMENT_KINDS[element.dtype].from_address(base + element.offset))
            set_numbers(frame)
            for number, entries in enumerate(tables):
                table = (ctypes.c_void_p * max(len(entries), 1))()
                for at, entry in enumerate(entries):
                    if isinstance(entry, InArena):
                        table[at] = base + entry.offset
                    elif isinstance(entry, Fixed):
                        table[at] = word(entry.number)
                setattr(frame, f"table_{number}", table)
            return frame

        return make


def namespace_of(driver: Any, functions: Mapping[str, Any]) -> dict[str, Any]:
    """What the driver's text uses, with the functions that make its native calls."""
    # The launches keep code alive that is called by address.
    return {**called(driver.things), **functions, "_launches": driver.launches, "_origins": driver.origins}


def frame_class_of(driver: Any, slots: Sequence[str]) -> tuple[Any, Callable[[Any], None]]:
    """The class of a driver's frames: `slots`, numbers and tables. And a function that makes a frame's numbers."""
    kinds = {
        slot: ctypes.c_double if dtype.is_floating_point else ctypes.c_int64 for slot, dtype in driver.numbers.items()
    }
    tables = (f"table_{n}" for n in range(len(driver.launches)))

    def set_numbers(frame: Any) -> None:
        for slot, kind in kinds.items():
            setattr(frame, slot, place := kind())
            setattr(frame, f"{slot}_p", ctypes.addressof(place))

    return type("Frame", (), {"__slots__": (*slots, *kinds, *(f"{slot}_p" for slot in kinds), *tables)}), set_numbers


def paired_programs(drivers: Sequence[UnboundDriver], join: Join) -> list[PairedProgram]:
    """Forward and its backwards as programs with one arena: each has finished with it before another one starts."""
    wholes = [driver.program(join) for driver in drivers]
    size = max(driver.arena for driver in drivers)

    def make_frames() -> tuple[Any, ...]:
        arena = arena_memory.new_arena(size)
        return tuple([whole.make_frame(arena) for whole in wholes])

    pool: list[tuple[Any, ...]] = []
    made = [PairedProgram(whole, side, pool, make_frames) for side, whole in enumerate(wholes)]
    if size >= arena_memory.LARGE:
        arena_memory.watch(made[0])
    return made
