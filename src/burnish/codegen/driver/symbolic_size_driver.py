"""Generates the driver of a plan with symbolic sizes from the drivers for a few sizes.

    driver for 64, 65, ... rows            =>      driver for all
        y = empty_cpu((64, 768), ...)                  y = empty_cpu((frame.n0, 768), ...)

Drivers are text and tables. The drivers of several examples may only differ in numbers. Those become formulas, which
are evaluated when a frame is made for sizes that have not been seen before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

import torch

from ... import events
from ...ir.graph import Node, Value
from ...runtime.linking.cuda_module_loader import SymbolicWords
from ...runtime.program.native_call_sequence import Entry, Fixed, InArena, NativeCalls
from ...runtime.program.native_kernels import Words
from ...runtime.program.unbound_driver import UnboundDriver
from ...runtime.program.unbound_symbolic_driver import (
    SymbolicEntry,
    SymbolicLaunch,
    SymbolicView,
    UnboundSymbolicDriver,
)
from ...schedule.library.candidate import OperatorCall as LibraryCall
from ...schedule.loops.build_kernel import Launch
from ...schedule.memory.plan_symbolic_arena import Slots
from ...schedule.plan_steps import Plan
from ...tensors.fit_size_formulas import NUMBER, Formula, NoFormula, Point, Space
from ...tensors.views.view_maps import Map
from ..llvm.symbolic_size_kernel import SymbolicLlvmKernel
from .generate_driver import DriverWriter


class SymbolicDriverWriter(DriverWriter):
    """The driver for one example. Only its text and tables hold numbers that may differ."""

    keeps_slots = False

    def __init__(
        self,
        plan: Plan,
        kernels: Sequence[SymbolicLlvmKernel],
        constants: Mapping[int, torch.Tensor],
        point: Point,
        takes_list: bool = False,
    ):
        super().__init__(plan, [kernel.native for kernel in kernels], constants, takes_list)
        self.symbolic_kernels, self.point = kernels, point

    def launch(self, step: Launch) -> None:
        kernel = self.symbolic_kernels[self.launched]
        super().launch(step)
        self.open.calls[-1][1].extend(Fixed(size.at(self.point)) for size in kernel.sizes)

    def table_of(self, calls: NativeCalls) -> list[Entry]:
        return all_entries(calls)

    def run_library(self, node: Node) -> None:
        """Calls the operator itself, with its numbers in the text."""
        candidate = node.args[0]
        if type(candidate.call) is not LibraryCall:
            raise NoFormula(f"the library call {candidate.name} is made for one size")
        super().run_library(node)

    def constant(self, given: Any) -> str:
        """A view map is written in the text, where its sizes may be formulas."""
        if not isinstance(given, get_args(Map)):
            return super().constant(given)
        name = type(given).__name__
        self.things[name] = type(given)
        return f"{name}({', '.join(repr(getattr(given, field.name)) for field in fields(given))})"


def all_entries(calls: NativeCalls) -> list[Entry]:
    """The table's entries; every operand has its own place."""
    return [entry for _, entries in calls.calls for entry in entries]


def symbolic_draft(
    examples: Sequence[UnboundDriver],
    slots: Slots,
    space: Space,
    parameters: Sequence[Sequence[Value]],
    numbers: Mapping[int, Sequence[int]],
) -> UnboundSymbolicDriver:
    """`parameters`: the inputs of each example, by position. `numbers`: those that are sizes themselves, by position,
    with their values for each example."""
    draft = Joiner(examples, slots, space).draft(parameters, numbers)
    if events.is_watched("kernels.driver"):
        events.emit("kernels.driver", text=draft.source, draft=draft)
    return draft


class Joiner:
    def __init__(self, examples: Sequence[UnboundDriver], slots: Slots, space: Space):
        self.examples, self.slots, self.space = examples, slots, space
        self.texts: dict[str, int] = {}
        """The formulas as Python text, and their indices."""

    def number(self, values: Sequence[int]) -> int | Formula:
        return self.space.fit(values)

    def draft(
        self, parameters: Sequence[Sequence[Value]], numbers: Mapping[int, Sequence[int]]
    ) -> UnboundSymbolicDriver:
        first = self.examples[0]
        source, views = self.source(), self.views()
        if any(example.launches.keys() != first.launches.keys() for example in self.examples):
            raise NoFormula("the driver calls something else for other sizes")
        launches = {name: self.launch([example.launches[name] for example in self.examples]) for name in first.launches}
        sizes, readers, things = list(map(str, self.slots.sizes)), self.readers(parameters, numbers), self.things()
        return UnboundSymbolicDriver(
            source,
            things,
            launches,
            list(self.texts),
            sizes,
            readers,
            views,
            first.numbers,
            self.space.names,
            list(self.space.points),
            first.origins,
        )

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

    def place(self, offsets: Sequence[int]) -> tuple[int, int]:
        """A place in the arena: its slot, and the index of the formula for its offset in the slot."""
        slot = bisect_right(self.slots.starts[0], offsets[0]) - 1
        # An empty slot begins where the next one does.
        for k in range(slot, -1, -1):
            behind = [offset - starts[k] for offset, starts in zip(offsets, self.slots.starts, strict=True)]
            if min(behind) >= 0:
                return k, self.value(self.number(behind))
        raise NoFormula("a value is not in any slot")

    def value(self, found: int | Formula) -> int:
        """Its index among the formulas. Constants are formulas too."""
        return self.texts.setdefault(str(found), len(self.texts))

    def views(self) -> list[SymbolicView]:
        found = []
        for names in zip(*(e.views for e in self.examples), strict=True):
            if len(set(names)) > 1:
                raise NoFormula("the driver sees other parts of memory for other sizes")
            views = [e.views[names[0]] for e in self.examples]
            shape = tuple(self.value(self.number(s)) for s in zip(*(v.shape for v in views), strict=True))
            stride = tuple(self.value(self.number(s)) for s in zip(*(v.stride for v in views), strict=True))
            dtype = views[0].dtype
            slot, behind = self.place([v.offset * dtype.itemsize for v in views])
            found.append(SymbolicView(names[0], dtype, shape, stride, slot, behind))
        return found

    def launch(self, calls: Sequence[NativeCalls]) -> SymbolicLaunch:
        """The driver itself writes operands that move into the table."""
        found: list[SymbolicEntry] = []
        words: list[tuple[int, Words | SymbolicWords]] = []
        for at, entries in enumerate(zip(*map(all_entries, calls), strict=True)):
            kind = type(entries[0])
            if any(type(e) is not kind for e in entries):
                raise NoFormula("a kernel's operands lie elsewhere for other sizes")
            if kind is InArena:
                found.append(SymbolicEntry(at, *self.place([e.offset for e in entries])))
            elif kind is Fixed and isinstance(entries[0].number, Words | SymbolicWords):
                if any(e.number is not entries[0].number for e in entries):
                    raise NoFormula("a native library call is made for one size")
                words.append((at, entries[0].number))
            elif kind is Fixed:
                found.append(SymbolicEntry(at, None, self.value(self.number([e.number for e in entries]))))
        kernels = [(kernel, len(entries)) for kernel, entries in calls[0].calls]
        return SymbolicLaunch(kernels, len(all_entries(calls[0])), found, words)

    def things(self) -> dict[str, Any]:
        first = self.examples[0].things
        for example in self.examples[1:]:
            if example.things.keys() != first.keys():
                raise NoFormula("the driver calls something else for other sizes")
            for name, thing in example.things.items():
                if not is_same(thing, first[name]):
                    raise NoFormula(f"the driver uses {first[name]!r:.60}, and {thing!r:.60} for other sizes")
        return first

    def readers(self, parameters: Sequence[Sequence[Value]], numbers: Mapping[int, Sequence[int]]) -> list[str]:
        """The input that each symbol is read from: a size of a tensor, or a number. It may differ from the symbol by a
        constant. Empty if no inputs are given."""
        if not parameters:
            return []
        sources = {
            f"inputs[{k}].shape[{dim}]": sizes
            for k, values in enumerate(zip(*parameters, strict=True))
            for dim, sizes in enumerate(zip(*(value.shape for value in values), strict=True))
        }
        sources |= {f"inputs[{k}]": values for k, values in numbers.items()}
        return [self.reader(symbol, sources) for symbol in zip(*self.space.points, strict=True)]

    def reader(self, symbol: Sequence[int], sources: Mapping[str, Sequence[int]]) -> str:
        """`symbol`: its values at the points. A tensor's size is read sooner than a number."""
        shifts = {source: {a - b for a, b in zip(values, symbol, strict=True)} for source, values in sources.items()}
        found = [
            (not source.endswith("]]"), abs(shift), shift, source)
            for source, (shift, *others) in shifts.items()
            if not others
        ]
        if not found:
            raise NoFormula("a size is that of no input")
        _, _, shift, source = min(found, key=lambda each: each[0])
        return f"{source} - {shift}" if shift else source


def is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and not isinstance(a, torch.Tensor) and not callable(a) and repr(a) == repr(b)
