"""Mutation and aliasing become values.

    aten.relu_.default x                     r = aten.relu.default x
    v = aten.select.int x, 0, 1         =>   a = aten.add.Tensor (view r slice[0: 1, 1, 1] ...), 1
    aten.add_.Tensor v, 1                    x1 = put r, a, slice[0: 1, 1, 1] ...
    return x                                 write x <- x1

Each tensor of the trace is a chain of view maps on a root: an input, or the fresh result of a node. A root has a
current value. An operator in place becomes its functional form, and the root gets a new current value; a view that is
read later is taken from that one. Inputs that were written are given their last value at the end.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import torch

from ..ir.build import Builder
from ..ir.graph import Alias, Graph, Node, Value, Write, replaced
from ..ir.infer import Untraceable
from ..ops.prims import VIEW
from ..ops.record import Op, View, lookup
from ..tensors.simplify import simplified
from ..tensors.views import Expand, Maps, inverse


@dataclass(slots=True)
class Root:
    current: Value
    shape: tuple[int, ...]
    input: int | None = None
    is_written: bool = False
    has_unknown_views: bool = False
    views: dict[Maps, Value] = field(default_factory=dict)
    """What was taken from the current value."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of the trace lives: `maps` of a root."""

    root: Root
    maps: Maps


def functionalize(graph: Graph) -> Graph:
    return Functionalizer(graph).run()


class Functionalizer:
    def __init__(self, graph: Graph):
        self.old, self.new = graph, Graph()
        self.build = Builder(self.new)
        self.places: dict[Value, Place] = {}

    def run(self) -> Graph:
        for k, value in enumerate(self.old.inputs):
            made = self.new.copy_input(value)
            self.places[value] = Place(Root(made, value.shape, input=k), ())
        for node in self.old.nodes:
            self.build.line = node.line
            written = written_argument(node)
            if written is not None:
                self.write_in_place(node, *written)
            elif isinstance(node.op.rule, View) and node.op.rule.is_alias:
                self.take_view(node, node.op.rule.maps(node.args[0].type, *node.args[1:], **node.kwargs))
            elif "maps" in node.op.notes:
                self.take_views(node)
            else:
                self.keep(node)
        self.new.outputs = [self.output(value) for value in self.old.outputs]
        for place in self.places.values():
            if place.root.input is not None and place.root.is_written and not place.maps:
                write = Write(place.root.input, place.root.current)
                if write not in self.new.writes:
                    self.new.writes.append(write)
        return self.new

    def keep(self, node: Node) -> None:
        """An operator that makes something fresh, as it stands."""
        results = self.build.apply_typed(
            node.op, replaced(node.args, self.read), {k: replaced(v, self.read) for k, v in node.kwargs.items()},
            tuple(None if value is None else value.type for value in node.results),
        )
        source = aliased_argument(node)
        if source is not None:
            # A view without maps, `as_strided` say: it may be read, but nothing of its storage may be written.
            root = self.places[source].root
            if root.is_written:
                raise Untraceable(f"{node.op} of a tensor that was written to")
            root.has_unknown_views = True
            for old, made in zip(node.results, results, strict=True):
                if old is not None:
                    self.places[old] = Place(Root(made, old.shape, has_unknown_views=True), ())
            return
        for old, made in zip(node.results, results, strict=True):
            if old is not None:
                self.places[old] = Place(Root(made, old.shape), ())

    def take_view(self, node: Node, maps: Any) -> None:
        place = self.places[node.args[0]]
        self.places[node.results[0]] = Place(place.root, simplified((*place.maps, *maps), place.root.shape))

    def take_views(self, node: Node) -> None:
        """A view with several results, like `split`."""
        place = self.places[node.args[0]]
        chains = node.op.notes["maps"](node.args[0].type, *node.args[1:], **node.kwargs)
        for result, maps in zip(node.results, chains, strict=True):
            self.places[result] = Place(place.root, simplified((*place.maps, *maps), place.root.shape))

    def read(self, value: Value) -> Value:
        """What the tensor holds now."""
        place = self.places[value]
        root = place.root
        if not place.maps:
            return root.current
        found = root.views.get(place.maps)
        if found is None:
            found = root.views[place.maps] = self.build.apply(VIEW, (root.current, place.maps))
        return found

    def write_in_place(self, node: Node, target: Value, functional: Op | None) -> None:
        place = self.places[target]
        if place.root.has_unknown_views:
            raise Untraceable(f"{node.op} writes to a tensor that is also seen through strides of its own")
        if any(isinstance(step, Expand) for step in place.maps) and inverse(place.maps, place.root.shape) is None:
            raise Untraceable(f"{node.op} writes to an expanded tensor")
        value = self.new_value(node, target, functional)
        if value.shape != target.shape:
            value = self.build.expand(value, target.shape)
        self.store(place, self.build.convert(value, target.dtype))

    def new_value(self, node: Node, target: Value, functional: Op | None) -> Value:
        args = replaced(node.args, self.read)
        kwargs = {k: replaced(v, self.read) for k, v in node.kwargs.items()}
        match node.op.name:
            case "aten.copy_.default":
                return args[1]
            case "aten.zero_.default":
                return self.build.full(target.shape, 0, target.type)
            case "aten.fill_.Scalar":
                return self.build.full(target.shape, args[1], target.type)
            case "aten.fill_.Tensor":
                return args[1]
        if functional is None:
            raise Untraceable(f"{node.op} has no form that leaves its argument alone")
        kwargs.pop("out", None)
        return self.build.apply(functional, args, kwargs)

    def store(self, place: Place, value: Value) -> None:
        root = place.root
        if not place.maps:
            root.current = value
        else:
            back = inverse(place.maps, root.shape)
            root.current = self.build.view(value, *back) if back is not None \
                else self.build.put(root.current, value, place.maps)
        root.is_written = True
        root.views.clear()

    def output(self, value: Any) -> Any:
        if not isinstance(value, Value):
            return value
        place = self.places[value]
        if place.root.input is not None:
            is_itself = value is self.old.inputs[place.root.input]
            return Alias(place.root.input, None if is_itself else value.type, place.maps)
        return self.read(value)


def written_argument(node: Node) -> tuple[Value, Op | None] | None:
    """The tensor an operator writes to, and the operator that computes what it writes."""
    if node.op.target is None:
        return None
    found = _in_place(node.op.target)
    if found is None:
        return None
    at, functional = found
    target = node.args[at] if isinstance(at, int) else node.kwargs[at]
    return target, None if functional is None else lookup(functional)


@functools.cache
def _in_place(func: Any) -> tuple[int | str, Any] | None:
    arguments = func._schema.arguments
    for k, argument in enumerate(arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            return (argument.name if argument.kwarg_only else k), _functional(func)
    return None


def _functional(func: Any) -> Any:
    """The overload with the same arguments that writes to none of them."""
    name = func._schema.name.split("::")[1]
    names = [a.name for a in func._schema.arguments if not a.is_out]
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    if packet is None:
        return None
    for overload in packet.overloads():
        found = getattr(packet, overload)
        arguments = found._schema.arguments
        if [a.name for a in arguments] == names and not any(a.alias_info and a.alias_info.is_write for a in arguments) \
                and all(str(a.type) == str(b.type) for a, b in zip(arguments, func._schema.arguments, strict=False)):
            return found
    return None


def aliased_argument(node: Node) -> Value | None:
    """The argument whose storage a result of the operator shares."""
    at = None if node.op.target is None else _aliased(node.op.target)
    return None if at is None or at >= len(node.args) or not isinstance(node.args[at], Value) else node.args[at]


@functools.cache
def _aliased(func: Any) -> int | None:
    if not any(r.alias_info is not None for r in func._schema.returns):
        return None
    for k, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None:
            return k
    return None


