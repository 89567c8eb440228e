"""Storage of a plan's values in its driver: arena, outputs, inputs and numbers, and their pointers and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...ir.graph import Node, Value
from ...runtime.program.native_call_sequence import Entry, InArena, Moving
from ...runtime.program.unbound_driver import ELEMENT_KINDS, ArenaElement, ArenaView
from ...schedule.plan_steps import MakeView, Plan
from ...tensors.tensor_types import NumberType, TensorType
from .driver_source import DriverText
from .view_elision import bases_of_unseen, handed_on, made_as_shown


class ValueStorage(DriverText):
    keeps_slots = True
    """Whether places in the arena are known when a frame is made."""

    def __init__(self, plan: Plan, bound: Sequence[int]):
        super().__init__()
        self.plan = plan
        self.bound = {plan.graph.inputs[k] for k in bound}
        self.bound_pointers: dict[str, Value] = {}
        self.names: dict[Value, str] = {}
        self.rooms: dict[Node, str] = {}
        self.arena_views: dict[str, ArenaView] = {}
        self.pointers: set[str] = set()
        """The names whose addresses the driver has read: an input and its new value have one name."""
        self.in_output_buffer = dict(plan.in_output_buffer)
        """Values in the memory of an output: the output, and bytes from its start. Views of them are added."""
        self.as_shown = made_as_shown(plan)
        self.bases = bases_of_unseen(plan)
        self.handed_on = handed_on(plan)
        self.number_slots: dict[str, torch.dtype] = {}
        self.read_elements: dict[str, ArenaElement] = {}

    def entry(self, value: Value, further: int = 0) -> Entry:
        """The address of a value, plus `further` bytes."""
        value = self.bases.get(value, value)
        if value in self.plan.offsets:
            return InArena(self.plan.offsets[value] + further)
        if value in self.in_output_buffer:
            return self.in_host(value, further)
        view = self.arena_views.get(self.names[value].removeprefix("frame."))
        if view is not None:
            return InArena(view.offset * view.dtype.itemsize + further)
        return Moving(self.pointer(value), further)

    def scratch(self, node: Node, further: int) -> Entry:
        """An address in the scratch memory of a call."""
        if node in self.in_output_buffer:
            return self.in_host(node, further)
        if node in self.plan.scratch:
            return InArena(self.plan.scratch[node] + further)
        if node not in self.rooms:  # a plan that runs once has no arena
            room = self.rooms[node] = self.identifier("room")
            count = node.args[0].scratch
            self.line(f"{room} = {self.memory(TensorType.contiguous((count,), torch.uint8))}")
            self.line(f"{room}_p = {room}.data_ptr()")
        return Moving(f"{self.rooms[node]}_p", further)

    def in_host(self, what: Value | Node, further: int) -> Entry:
        """An address in the memory of an output."""
        host, at = self.in_output_buffer[what]
        self.make(host)
        return Moving(self.pointer(host), at + further)

    def make(self, value: Value) -> None:
        """Allocate memory for a value that a kernel stores next, unless it is in the arena or in an input."""
        if self.has_memory(value):
            return
        if value in self.plan.placed:
            self.names[value] = self.names[self.plan.placed[value]]
            return
        if value in self.plan.in_place:
            self.names[value] = self.over(value, self.plan.in_place[value])
            return
        shown = self.as_shown.get(value)
        name, type = (value.name, value.type) if shown is None else (shown.value.name, shown.type)
        self.names[value] = self.identifier(name)
        self.line(f"{self.names[value]} = {self.memory(type)}")

    def has_memory(self, value: Value) -> bool:
        return value in self.plan.offsets or value in self.in_output_buffer or value in self.names

    def over(self, value: Value, below: Value) -> str:
        """Store a value in the memory of one that is no longer needed."""
        name = self.names[below]
        if value.type == below.type:
            return name
        shown = self.identifier(value.name)
        self.line(f"{shown} = {self.strided(name, value.type, 0)}; del {name}")
        return shown

    def pointer(self, value: Value) -> str:
        name = self.names[value]
        if isinstance(value.type, NumberType):
            return self.number_pointer(value, name)
        if name not in self.pointers:
            self.pointers.add(name)
            if value in self.bound:
                self.bound_pointers[f"{name}_p"] = value
            else:
                self.line(f"{name}_p = {name}.data_ptr()")
        return f"{name}_p"

    def number_pointer(self, value: Value, name: str) -> str:
        """Kernels read a number from a slot of the frame."""
        slot = f"number_{name}"
        if name not in self.pointers:
            self.pointers.add(name)
            self.number_slots[slot] = value.dtype
            if not value.dtype.is_floating_point:
                # As in eager it is an error, which plain Python raises: the slot would take the lowest 64 bits.
                self.line(f"if {name}.bit_length() > 63: raise OverflowError('int too big to convert')")
            self.line(f"frame.{slot}.value = {name}")
        return f"frame.{slot}_p"

    def element(self, value: Value) -> str:
        """The only element of a tensor on the host, as a Python number. Of one in the arena, the frame has a slot."""
        if value not in self.plan.offsets or value.dtype not in ELEMENT_KINDS or not self.keeps_slots:
            return f"{self.tensor(value)}.item()"
        slot = f"element_{self.identifier(value.name)}"
        self.read_elements[slot] = ArenaElement(value.dtype, self.plan.offsets[value])
        return f"frame.{slot}.value"

    def show(self, step: MakeView) -> None:
        type = step.type
        if step.value in self.bases:
            return
        if step.source in self.as_shown:
            self.names[step.value] = self.names[step.source]
            return
        if step.source in self.plan.offsets:
            at = self.plan.offsets[step.source] // type.dtype.itemsize + step.offset
            self.names[step.value] = self.arena_view(step.value, type, at)
            return
        if step.source in self.in_output_buffer:
            host, at = self.in_output_buffer[step.source]
            self.in_output_buffer[step.value] = host, at + step.offset * type.dtype.itemsize
            return
        if step.source in self.names and self.names[step.source].startswith("frame."):
            at = self.arena_views[self.names[step.source].removeprefix("frame.")].offset
            self.names[step.value] = self.arena_view(step.value, type, at + step.offset)
            return
        source = self.names[step.source]
        self.names[step.value] = self.identifier(step.value.name)
        show = self.strided if step.value in self.handed_on else self.shown
        self.line(f"{self.names[step.value]} = {show(source, type, step.offset)}")

    def result(self, value: Value | None) -> str:
        if value is None:
            return "_"
        self.names[value] = self.identifier(value.name)
        return self.names[value]

    def tensor(self, value: Value) -> str:
        """A tensor for a value; for one in the arena, a view of the arena."""
        if value not in self.names and value in self.in_output_buffer:
            self.names[value] = self.view_in_output_buffer(value)
        elif value not in self.names:
            at = self.plan.offsets[value] // value.dtype.itemsize
            self.names[value] = self.arena_view(value, value.type, at)
        return self.names[value]

    def view_in_output_buffer(self, value: Value) -> str:
        """A tensor in the memory of an output."""
        (host, at), type = self.in_output_buffer[value], value.type
        self.make(host)
        name = self.identifier(value.name)
        self.line(f"{name} = within({self.names[host]}, {self.dtype(type.dtype)}, {type.shape}, {type.stride}, {at})")
        return name

    def arena_view(self, value: Value, type: TensorType, offset: int) -> str:
        name = self.identifier(value.name)
        self.arena_views[name] = ArenaView(type.dtype, type.shape, type.stride, offset)
        return f"frame.{name}"

    def argument(self, arg: Any) -> str:
        if isinstance(arg, Value):
            return self.tensor(arg)
        if isinstance(arg, (list, tuple)):
            inside = "".join(f"{self.argument(part)}, " for part in arg)
            return f"[{inside}]" if isinstance(arg, list) else f"({inside})"
        return self.constant(arg)
