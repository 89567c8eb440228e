"""The driver of a plan whose sizes are told at run time, from the drivers for a few sizes.

    driver for 64, 65, ... rows            =>      driver for all
        y = empty_strided((64, 768), ...)              y = empty_strided((frame.n0, 768), ...)

Drivers are text and tables. What differs among those of several examples must be numbers, and those become formulas,
evaluated when a frame is made for sizes that have not been seen before.
"""

from __future__ import annotations

import ctypes
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.graph import Node, Value
from ..runtime.draft import called
from ..runtime.native_calls import Entry, Fixed, InArena, Join, Moving, NativeCalls
from ..runtime.open_program import OpenProgram, Room, SizeCheck
from ..schedule.emit import Launch
from ..schedule.library.candidate import Call as LibraryCall
from ..schedule.library.candidate import Operand
from ..schedule.open_arena import Slots, slot_starts
from ..schedule.plan import Plan, writes_into
from ..tensors.sizes import Formula, NoFormula, Point, Space
from ..tensors.types import TensorType
from .llvm.open_kernel import OpenKernel
from .program import DriverWriter

NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


class OpenDriverWriter(DriverWriter):
    """The driver for one example. Numbers that may differ stand in its text and tables, in nothing else."""

    def __init__(self, plan: Plan, kernels: Sequence[OpenKernel], constants: Mapping[int, torch.Tensor],
                 join: Join, point: Point, takes_list: bool = False):
        super().__init__(plan, [kernel.native for kernel in kernels], constants, takes_list)
        self.open_kernels, self.point, self.join = kernels, point, join
        self.tables: list[list[Entry]] = []
        self.kernels_held = list(self.kernels)  # whose code is called by address

    def launch(self, step: Launch) -> None:
        kernel = self.open_kernels[self.launched]
        super().launch(step)
        self.open.calls[-1][1].extend(Fixed(size.at(self.point)) for size in kernel.sizes)

    def flush(self) -> None:
        if self.open.calls:
            launch, table = joined(self.open, self.join)
            self.open = NativeCalls()
            number = len(self.tables)
            self.tables.append(table)
            self.line(f"t = frame.table_{number}")
            for at, entry in enumerate(table):
                if isinstance(entry, Moving):
                    self.line(f"t[{at}] = {entry.text}" + (f" + {entry.offset}" if entry.offset else ""))
            self.line(f"{self.bind('launch', launch)}(t)")
        super().flush()

    def run_library(self, node: Node) -> None:
        """The operator itself, its numbers in the text."""
        candidate, operands = node.args
        call, value = candidate.call, node.results[0]
        if type(call) is not LibraryCall or value is None:
            raise NoFormula(f"the library call {candidate.name} is made for one size")
        tensors = {name: self.tensor(operand) for name, operand in zip(candidate.operands, operands, strict=True)}

        def argument(given: Any) -> str:
            if not isinstance(given, Operand):
                if isinstance(given, (list, tuple)) and not all(isinstance(x, (int, bool, type(None))) for x in given):
                    return self.bind("constant", given)
                return self.argument(given)
            text = tensors[given.name]
            return text if given.shape is None else f"as_strided({text}, {given.shape}, {given.stride})"

        given = [*map(argument, call.arguments), *(f"{key}={argument(arg)}" for key, arg in call.keywords)]
        if writes_into(node):
            self.make(value)
            out, inner = self.tensor(value), call.result
            if inner is not None:
                out = f"as_strided({out}, {inner.shape}, {inner.stride})"
            self.line(f"{self.bind('call', call.out)}({', '.join([*given, f'out={out}'])})")
            return
        text = f"{self.bind('call', call.operator)}({', '.join(given)})"
        if call.which is not None:
            text += f"[{call.which}]"
        if call.result is not None:
            text = f"as_strided({text}, {candidate.output.shape}, {candidate.output.stride})"
        self.line(f"{self.result(value)} = {text}")
        self.check_stride(value)

    def run_natively(self, node: Node) -> None:
        raise NoFormula("a native library call is made for one size")

    def example(self) -> Example:
        source = self.text()
        things = called(self.things) | {"_kernels": self.kernels_held}
        return Example(source, things, self.arena_views, self.tables, self.number_slots)


def joined(calls: NativeCalls, join: Join) -> tuple[Callable[[Any], None], list[Entry]]:
    """One function for all, and its table, in which every operand has its own place."""
    table = [entry for _, entries in calls.calls for entry in entries]
    if len(calls.calls) == 1:
        return calls.calls[0][0].launch, table
    steps, at = [], 0
    for kernel, entries in calls.calls:
        steps.append((kernel, range(at, at + len(entries))))
        at += len(entries)
    return join(steps).launch, table


@dataclass(frozen=True, slots=True)
class Example:
    """A driver for one point."""

    source: str
    things: dict[str, Any]
    views: dict[str, tuple[TensorType, int]]
    tables: list[list[Entry]]
    numbers: dict[str, torch.dtype]


def open_program(examples: Sequence[Example], slots: Slots, space: Space, parameters: Sequence[Sequence[Value]],
                 check: SizeCheck, otherwise: Callable[..., Any]) -> OpenProgram:
    """`parameters`: the inputs of each example, by position. `check` tells whether the program is right for other
    sizes, `otherwise` runs where it is not."""
    return Joiner(examples, slots, space).program(parameters, check, otherwise)


class Joiner:
    def __init__(self, examples: Sequence[Example], slots: Slots, space: Space):
        self.examples, self.slots, self.space = examples, slots, space
        self.texts: dict[str, int] = {}
        """The formulas, as Python, and their numbers."""

    def number(self, values: Sequence[int]) -> int | Formula:
        return self.space.fit(values)

    def program(self, parameters: Sequence[Sequence[Value]], check: SizeCheck,
                otherwise: Callable[..., Any]) -> OpenProgram:
        source = self.source()
        views = self.views()
        tables = [self.table(tables) for tables in zip(*(e.tables for e in self.examples), strict=True)]
        sizes = [self.text(size) for size in self.slots.sizes]
        names = "".join(f"{name}, " for name in self.space.names)
        namespace: dict[str, Any] = {}
        functions = {f"formulas({names})": list(self.texts), f"slots({names})": sizes,
                     "point(inputs)": self.readers(parameters)}
        for head, texts in functions.items():
            exec(f"def {head}:\n    return ({''.join(f'{text}, ' for text in texts)})\n", namespace)
        return OpenProgram(source, self.namespace(), namespace["point"], self.frame_maker(views, tables, namespace),
                           self.space.names, self.space.points, check, otherwise)

    def source(self) -> str:
        sources = [example.source.splitlines() for example in self.examples]
        if len({len(lines) for lines in sources}) > 1:
            raise NoFormula("the driver has other steps for other sizes")
        return "\n".join(map(self.line, zip(*sources, strict=True))) + "\n"

    def line(self, lines: Sequence[str]) -> str:
        first = lines[0]
        if all(line == first for line in lines):
            return first
        if len({NUMBER.sub("#", line) for line in lines}) > 1:
            raise NoFormula(f"the driver does something else for other sizes: {first.strip()} and {lines[1].strip()}")
        numbers = iter(list(zip(*(map(int, NUMBER.findall(line)) for line in lines), strict=True)))

        def written(_: re.Match) -> str:
            found = self.number(next(numbers))
            return str(found) if isinstance(found, int) else f"frame.n{self.index(found)}"
        return NUMBER.sub(written, first)

    def index(self, formula: Formula) -> int:
        return self.texts.setdefault(str(formula), len(self.texts))

    def text(self, found: int | Formula) -> str:
        return str(found)

    def place(self, offsets: Sequence[int]) -> tuple[int, int]:
        """A place in the arena: its slot, and how far behind its beginning, as a place among the formulas."""
        slot = bisect_right(self.slots.starts[0], offsets[0]) - 1
        # A slot of no size begins where the next one does.
        for k in range(slot, -1, -1):
            behind = [offset - starts[k] for offset, starts in zip(offsets, self.slots.starts, strict=True)]
            if min(behind) >= 0:
                return k, self.value(self.number(behind))
        raise NoFormula("a value lies in no slot")

    def value(self, found: int | Formula) -> int:
        """Its number among the formulas, constants too."""
        return self.texts.setdefault(str(found), len(self.texts))

    def views(self) -> list[tuple[str, torch.dtype, tuple[int, ...], tuple[int, ...], int, int]]:
        """Name, dtype, and the numbers of: shape, strides; slot, and elements behind it in bytes."""
        found = []
        for names in zip(*(e.views for e in self.examples), strict=True):
            if len(set(names)) > 1:
                raise NoFormula("the driver sees other parts of memory for other sizes")
            types, offsets = zip(*(e.views[names[0]] for e in self.examples), strict=True)
            shape = tuple(self.value(self.number(s)) for s in zip(*(t.shape for t in types), strict=True))
            stride = tuple(self.value(self.number(s)) for s in zip(*(t.stride for t in types), strict=True))
            item = types[0].dtype.itemsize
            found.append((names[0], types[0].dtype, shape, stride, *self.place([at * item for at in offsets])))
        return found

    def table(self, tables: Sequence[list[Entry]]) -> list[tuple[int, int | None, int]]:
        """Place in the table, slot (None: a plain number) and the number behind it. What moves is put there by the
        driver."""
        found: list[tuple[int, int | None, int]] = []
        for at, entries in enumerate(zip(*tables, strict=True)):
            kind = type(entries[0])
            if any(type(e) is not kind for e in entries):
                raise NoFormula("a kernel's operands lie elsewhere for other sizes")
            if kind is InArena:
                found.append((at, *self.place([e.offset for e in entries])))
            elif kind is Fixed:
                found.append((at, None, self.value(self.number([e.number for e in entries]))))
        return found

    def namespace(self) -> dict[str, Any]:
        first = self.examples[0].things
        for example in self.examples[1:]:
            if example.things.keys() != first.keys():
                raise NoFormula("the driver calls something else for other sizes")
            for name, thing in example.things.items():
                if not name.startswith(("launch_", "_kernels")) and not is_same(thing, first[name]):
                    raise NoFormula(f"the driver uses {first[name]!r:.60}, and {thing!r:.60} for other sizes")
        return first

    def readers(self, parameters: Sequence[Sequence[Value]]) -> list[str]:
        """Where each symbol is found in the inputs; nothing, where no inputs are given to look at."""
        if not parameters:
            return []
        found: dict[int, str] = {}
        symbols = [self.space.symbol(k) for k in range(len(self.space.names))]
        for k, values in enumerate(zip(*parameters, strict=True)):
            for dim, sizes in enumerate(zip(*(value.shape for value in values), strict=True)):
                fit = self.space.fit(sizes)
                if fit in symbols:
                    found.setdefault(symbols.index(fit), f"inputs[{k}].shape[{dim}]")
        if len(found) < len(symbols):
            raise NoFormula("a size is that of no input")
        return [found[k] for k in range(len(symbols))]

    def frame_maker(self, views: list, tables: list, namespace: dict[str, Any]) -> Callable[[Point, Room], Any]:
        formulas, slot_sizes = namespace["formulas"], namespace["slots"]
        numbers = {slot: ctypes.c_double if dtype.is_floating_point else ctypes.c_int64
                   for slot, dtype in self.examples[0].numbers.items()}
        lengths = [len(table) for table in self.examples[0].tables]
        count = len(self.texts)
        names = ("point", *(f"n{k}" for k in range(count)), *(name for name, *_ in views), *numbers,
                 *(f"{slot}_p" for slot in numbers), *(f"table_{n}" for n in range(len(tables))))
        frame_class = type("Frame", (), {"__slots__": names})
        evaluated = [k for k, text in enumerate(self.texts) if not text.isdigit()]

        def make(point: Point, room: Room) -> Any:
            frame: Any = frame_class()
            frame.point = point
            values = formulas(*point)
            starts = slot_starts(slot_sizes(*point))
            base = room.reserve(starts[-1])
            for k in evaluated:
                setattr(frame, f"n{k}", values[k])
            for name, dtype, shape, stride, slot, behind in views:
                at = (base + starts[slot] + values[behind] - room.address) // dtype.itemsize
                setattr(frame, name, torch.as_strided(room.view(dtype), tuple([values[k] for k in shape]),
                                                      tuple([values[k] for k in stride]), at))
            for slot, kind in numbers.items():
                setattr(frame, slot, place := kind())
                setattr(frame, f"{slot}_p", ctypes.addressof(place))
            for number, entries in enumerate(tables):
                table = (ctypes.c_void_p * max(lengths[number], 1))()
                for at, slot, behind in entries:
                    table[at] = values[behind] if slot is None else base + starts[slot] + values[behind]
                setattr(frame, f"table_{number}", table)
            return frame
        return make


def is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and not isinstance(a, torch.Tensor) and not callable(a) and repr(a) == repr(b)
