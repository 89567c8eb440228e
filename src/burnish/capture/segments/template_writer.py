"""Writes the lines of a template: the expressions in it and the variables, constants, sources and outputs they name.

to.name(value, to.list_of(value))         t0 = [G[0], V[2]]
to.do(set_gradients, "V[0]", "t0")        c1(V[0], t0)
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..engine.break_signals import Unrebuildable
from ..engine.graph_recorder import Recorder
from ..engine.heap import Heap
from ..engine.torch_call_records import Handle
from ..guards.guards import CheckWriter
from ..guards.object_sources import Source
from ..guards.tensor_metadata import WithoutRules
from ..numbers import object_addresses


class TemplateWriter:
    """The lines of a template, and the names in them. `Rebuilder` says how each kind of object is built."""

    def __init__(self, tracer: Any):
        self.tracer = tracer
        self.heap: Heap = tracer.heap
        self.recorder: Recorder = tracer.recorder
        self.writer = CheckWriter()  # for its constants only
        self.lines: list[str] = []
        self.memo: dict[int, str] = {}
        self.after_effects: list[str] = []  # lines that depend on what the effects leave in outside objects
        self.keep: list[Any] = []
        self.sources: dict[int, tuple[int, Source]] = {}
        self.outputs: list[Handle] = []
        self.output_at: dict[int, int] = {}
        self.in_inference_mode: list[bool | None] = []
        """For each output, whether it was made in inference mode; None if it is not a tensor."""
        self.active: dict[int, int] = {}  # generators whose frame is running: index of the frame
        self.clones: dict[int, str] = {}
        self.leaves = False  # they go to plain Python, which gets builtin iterators in place of ours
        self.is_hidden = False  # in the frame of an outside generator: the next call may advance what it has begun
        self.own_gradients = tracer.gradients.without_views()

    # ---- pieces

    def constant(self, value: Any) -> str:
        if self.tracer.addresses and object_addresses.is_part_of(self.tracer, value):
            if type(value) is not int:
                raise Unrebuildable(value, "the address of an object is in a constant")
            return self.address(self.tracer.addresses[value])
        if issubclass(type(value), type) and id(value) in self.heap.fresh:
            raise Unrebuildable(value, f"the class {value.__qualname__}, made here, leaves the graph")
        if type(value) is types.CodeType and id(value) in self.heap.fresh:
            raise Unrebuildable(value, "a code object that compile() makes leaves the graph")
        return self.writer.constant(value)

    def address(self, of: object_addresses.Address) -> str:
        if of.is_gone:
            raise Unrebuildable(None, f"the address of a {of.kind.__qualname__} that is gone")
        return f"id({self.build(of.reference())})"

    def variable(self) -> str:
        return f"t{len(self.keep)}"

    def name(self, value: Any, expression: str) -> str:
        """Bind ``expression`` to a variable that stands for ``value``."""
        name = self.variable()
        self.keep.append(value)
        self.memo[id(value)] = name
        self.lines.append(f"{name} = {expression}")
        return name

    def name_once(self, value: Any, expression: str) -> str:
        """``name`` for an immutable object: building its parts has built it already if one of them holds it."""
        return self.memo.get(id(value)) or self.name(value, expression)

    def load(self, source: Source) -> str:
        if source.kind == "const":
            return self.constant(source.key)
        at = self.sources.get(id(source))
        if at is None:
            at = self.sources[id(source)] = (len(self.sources), source)
        return f"V[{at[0]}]"

    def output(self, handle: Handle, value: Any = None) -> str:
        at = self.output_at.get(id(handle))
        if at is None:
            at = self.output_at[id(handle)] = len(self.outputs)
            self.outputs.append(handle)
            with WithoutRules():
                self.in_inference_mode.append(value.is_inference() if issubclass(type(value), torch.Tensor) else None)
        return f"G[{at}]"

    def graph_number(self, handle: Handle) -> str:
        return self.output(handle)

    def build(self, value: Any) -> str:
        """An expression for a value, whose parts the lines so far have made."""
        raise NotImplementedError

    # ---- expressions and lines of them

    def items(self, values: Iterable[Any]) -> str:
        return ", ".join([self.build(value) for value in values])

    def list_of(self, values: Iterable[Any]) -> str:
        return f"[{self.items(values)}]"

    def tuple_of(self, values: Sequence[Any]) -> str:
        return f"({self.items(values)}{',' if len(values) == 1 else ''})"

    def call(self, function: Any, *args: str) -> str:
        return f"{self.constant(function)}({', '.join(args)})"

    def do(self, function: Any, *args: str) -> None:
        self.lines.append(self.call(function, *args))

    def set_attributes(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Of a new object, in its dictionary."""
        for key, part in attributes.items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.build(part)}")
