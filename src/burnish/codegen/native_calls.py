"""Native functions that follow one another: the driver calls them at once, with one table of addresses.

    calls = NativeCalls()
    calls.add(add, [InArena(0), Moving("x_p"), Moving("y_p")])
    calls.add(product, [InArena(256), InArena(0), Moving("w_p"), Fixed(0x7f00...)])
    launch, table = calls.joined(compile_sequence)

`table` says what the places of the table are: what moves is put there by the driver before each call, the rest is there
from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..runtime.kernels import NativeKernel


@dataclass(frozen=True, slots=True)
class InArena:
    offset: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class Fixed:
    address: int


@dataclass(frozen=True, slots=True)
class Moving:
    """Elsewhere in every run."""

    text: str
    """How the driver calls the address where it begins."""
    offset: int = 0


Entry = InArena | Fixed | Moving
Join = Callable[[Sequence[tuple[NativeKernel, Sequence[Any]]]], Any]


@dataclass(slots=True)
class NativeCalls:
    calls: list[tuple[NativeKernel, list[Entry]]] = field(default_factory=list)

    def add(self, kernel: NativeKernel, entries: list[Entry]) -> None:
        self.calls.append((kernel, entries))

    def joined(self, join: Join) -> tuple[Callable[[Any], None], list[Entry]]:
        """The function that runs them all, and its table."""
        if len(self.calls) == 1 and not any(isinstance(e, Moving) and e.offset for e in self.calls[0][1]):
            kernel, entries = self.calls[0]
            return kernel.launch, entries
        texts = dict.fromkeys(e.text for _, entries in self.calls for e in entries if isinstance(e, Moving))
        slots = {text: slot for slot, text in enumerate(texts, 2)}

        def operand(entry: Entry) -> tuple[int, int]:
            match entry:
                case InArena(offset):
                    return 0, offset
                case Fixed(address):
                    return 1, address
                case Moving(text, offset):
                    return slots[text], offset

        sequence = join([(kernel, [operand(entry) for entry in entries]) for kernel, entries in self.calls])
        return sequence.launch, [InArena(0), Fixed(0), *map(Moving, texts)]
