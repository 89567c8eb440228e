"""A driver with symbolic sizes before it is bound to memory: text and tables, as in `unbound_driver`.

    draft = symbolic_draft(examples, slots, space, parameters)          codegen
    program = draft.program(compile_sequence, check, otherwise)

Numbers that depend on the sizes are formulas: Python expressions over the names of the sizes, such as `16*s0 + 4`.
They are evaluated when a frame is made for new sizes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from ...tensors.fit_size_formulas import Formula, Point, slot_starts
from ..linking.cuda_module_loader import SymbolicWords
from .call_origins import CallOrigins
from .native_call_sequence import Join
from .native_kernels import NativeKernel, Words
from .symbolic_size_program import Room, SizeCheck, SymbolicProgram
from .unbound_driver import frame_class_of, namespace_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SymbolicView:
    """A tensor in the arena. All fields but the slot are indices of formulas; `behind` is in bytes."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    slot: int
    behind: int


@dataclass(frozen=True, slots=True)
class SymbolicEntry:
    """An entry that is filled in when the table is made: a formula's value, as it is or added to a slot's start."""

    at: int
    slot: int | None
    number: int


@dataclass(frozen=True, slots=True)
class SymbolicLaunch:
    kernels: list[tuple[NativeKernel, int]]
    """And how many consecutive entries of the table each takes."""
    length: int
    entries: list[SymbolicEntry]
    words: list[tuple[int, Words | SymbolicWords]]
    """The entries of the table that hold addresses of words."""


@dataclass(frozen=True, slots=True)
class UnboundSymbolicDriver:
    source: str
    things: dict[str, Any]
    launches: dict[str, SymbolicLaunch]
    formulas: list[str]
    slots: list[str]
    """Sizes of the slots of the arena."""
    readers: list[str]
    """Expressions that read each size from the inputs."""
    views: list[SymbolicView]
    numbers: dict[str, torch.dtype]
    names: tuple[str, ...]
    points: list[Point]
    """The sizes of the examples that it was made from."""
    origins: CallOrigins | None = None
    conditions: tuple[Formula, ...] = ()
    """What must not be negative for sizes that it is valid for."""

    @property
    def is_divided(self) -> bool:
        return any("//" in text for text in (*self.formulas, *self.slots))

    def program(self, join: Join, check: SizeCheck, otherwise: Callable[..., Any]) -> SymbolicProgram:
        """`check` returns whether the program is valid for other sizes; `otherwise` runs where it is not."""
        names = "".join(f"{name}, " for name in self.names)
        functions: dict[str, Any] = {}
        for head, texts in (
            (f"formulas({names})", self.formulas),
            (f"slots({names})", self.slots),
            ("point(inputs)", self.readers),
        ):
            exec(f"def {head}:\n    return ({''.join(f'{text}, ' for text in texts)})\n", functions)
        namespace = namespace_of(self, {name: joined(launch, join) for name, launch in self.launches.items()})
        return SymbolicProgram(
            self.source,
            namespace,
            functions["point"],
            self.frame_maker(functions["formulas"], functions["slots"]),
            self.names,
            self.points,
            check,
            otherwise,
            check.is_at_every_size,
        )

    def frame_maker(
        self, formulas: Callable[..., tuple], slot_sizes: Callable[..., tuple]
    ) -> Callable[[Point, Room], Any]:
        launches = list(self.launches.values())
        formula_slots, view_slots = (f"n{k}" for k in range(len(self.formulas))), (view.name for view in self.views)
        frame_class, set_numbers = frame_class_of(self, ["point", "words", *formula_slots, *view_slots])
        evaluated = [k for k, text in enumerate(self.formulas) if not text.isdigit()]
        views, moving_views = parted(self.views, self.stays)
        tables, moving_tables = parted(list(enumerate(launches)), lambda pair: self.table_stays(pair[1]))

        def view_of(view: SymbolicView, values: tuple, starts: list[int], base: int, room: Room) -> torch.Tensor:
            at = (base + starts[view.slot] + values[view.behind] - room.address) // view.dtype.itemsize
            return torch.as_strided(
                room.view(view.dtype),
                tuple([values[k] for k in view.shape]),
                tuple([values[k] for k in view.stride]),
                at,
            )

        def table_of(launch: SymbolicLaunch, values: tuple, starts: list[int], base: int, frame: Any) -> Any:
            table = (ctypes.c_void_p * max(launch.length, 1))()
            for entry in launch.entries:
                value = values[entry.number]
                table[entry.at] = value if entry.slot is None else base + starts[entry.slot] + value
            for at, words in launch.words:
                if isinstance(words, SymbolicWords):
                    words = words.at(frame.point)
                    frame.words.append(words)
                table[at] = words.address
            return table

        def make(point: Point, room: Room) -> Any:
            frame: Any = frame_class()
            frame.point, frame.words = point, []
            values = formulas(*point)
            starts = slot_starts(slot_sizes(*point))
            base = room.reserve(starts[-1])
            if room.staying is None:
                room.staying = [
                    *((view.name, view_of(view, values, starts, base, room)) for view in views),
                    *((f"table_{number}", table_of(launch, values, starts, base, frame)) for number, launch in tables),
                ]
            for name, thing in room.staying:
                setattr(frame, name, thing)
            for k in evaluated:
                setattr(frame, f"n{k}", values[k])
            for view in moving_views:
                setattr(frame, view.name, view_of(view, values, starts, base, room))
            set_numbers(frame)
            for number, launch in moving_tables:
                setattr(frame, f"table_{number}", table_of(launch, values, starts, base, frame))
            return frame

        return make

    def table_stays(self, launch: SymbolicLaunch) -> bool:
        """Whether it is the same for all sizes."""
        return all(map(self.stays, launch.entries)) and not any(
            isinstance(words, SymbolicWords) for _, words in launch.words
        )

    def stays(self, part: SymbolicView | SymbolicEntry) -> bool:
        """Whether a part of the frame is the same for all sizes. This includes slots that come before the first slot of
        symbolic size."""
        numbers = (part.behind, *part.shape, *part.stride) if isinstance(part, SymbolicView) else (part.number,)
        before = [] if part.slot is None else self.slots[: part.slot]
        return all(text.isdigit() for text in (*before, *(self.formulas[k] for k in numbers)))


def parted(parts: Sequence[T], stays: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    return [part for part in parts if stays(part)], [part for part in parts if not stays(part)]


def joined(launch: SymbolicLaunch, join: Join) -> Callable[[Any], None]:
    if len(launch.kernels) == 1:
        return launch.kernels[0][0].launch
    steps, at = [], 0
    for kernel, count in launch.kernels:
        steps.append((kernel, range(at, at + count)))
        at += count
    made: Callable[[Any], None] = join(steps).launch
    return made
