"""Sequences of native calls: one driver call runs several kernels from one table of addresses.

    calls = NativeCalls()
    calls.add(add, [InArena(0), Moving("x_p"), Moving("y_p")])
    calls.add(product, [InArena(256), InArena(0), Moving("w_p"), Fixed(plan)])
    calls.table(), calls.launch(compile_sequence)

The table's entries say what its slots hold. The driver fills in moving addresses before each call; the others are
filled in when the frame is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .native_kernels import NativeKernel, Words

if TYPE_CHECKING:
    from ..linking.cuda_module_loader import SymbolicWords


class InArena(NamedTuple):
    offset: int
    """In bytes."""


class Fixed(NamedTuple):
    """A plain number, or the address of words."""

    number: int | Words | SymbolicWords


class Moving(NamedTuple):
    """An address that differs in every run."""

    text: str
    """The driver's expression for the base address."""
    offset: int = 0


Entry = InArena | Fixed | Moving
Join = Callable[[Sequence[tuple[NativeKernel, Sequence[Any]]]], Any]


@dataclass(slots=True)
class NativeCalls:
    calls: list[tuple[NativeKernel, list[Entry]]] = field(default_factory=list)

    def add(self, kernel: NativeKernel, entries: list[Entry]) -> None:
        self.calls.append((kernel, entries))

    @property
    def is_single(self) -> bool:
        return len(self.calls) == 1 and not any(isinstance(e, Moving) and e.offset for e in self.calls[0][1])

    def moving(self) -> list[str]:
        """The moving addresses, each once."""
        return list(dict.fromkeys(e.text for _, entries in self.calls for e in entries if isinstance(e, Moving)))

    def table(self) -> list[Entry]:
        if self.is_single:
            return self.calls[0][1]
        return [InArena(0), Fixed(0), *map(Moving, self.moving())]

    def launch(self, join: Join) -> Callable[[Any], None]:
        """The function that runs them all. `join` makes one function of several."""
        if self.is_single:
            return self.calls[0][0].launch
        slots = {text: slot for slot, text in enumerate(self.moving(), 2)}

        def operand(entry: Entry) -> tuple[int, int | Words]:
            match entry:
                case InArena(offset):
                    return 0, offset
                case Fixed(number):
                    return 1, number
                case Moving(text, offset):
                    return slots[text], offset

        launch: Callable[[Any], None] = join(
            [(kernel, [operand(entry) for entry in entries]) for kernel, entries in self.calls]
        ).launch
        return launch
