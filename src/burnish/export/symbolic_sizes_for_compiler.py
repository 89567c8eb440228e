"""Symbolic sizes of an exported graph for the compiler: as capture describes them, from the graph's own size nodes.

    sym_size = aten.sym_size.int(x, 0)
    mul = sym_size * 2                     ->      view = linear.view(size_0, 3)      size_0 is an input: 2 * x.shape[0]
    view = linear.view(mul, 3)

A program serves all sizes from 2 on. Its key holds the layout of an input in memory, in place of its sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from ..capture.symbolic_sizes.example_inputs import is_plain
from ..captured_graph.symbolic_example_inputs import Like, SymbolicExampleInputs
from ..compiler.graph_cache_key import NoKey, input_facts
from ..tensors.eager_strides import packed_order
from ..tensors.fit_size_formulas import Formula, Point, Space
from .symbolic_sizes import OPERATIONS, SizeRange, SymbolicSize, power

LEAST = 2
"""Programs are not for smaller sizes."""

FUNCTIONS = frozenset(OPERATIONS.values()) - {power} | {operator.pow}
Read = Callable[[int, int], int]
"""The size of a dimension of a graph input, by their numbers."""


class SizeNumbers:
    """The nodes of a graph that compute numbers from the sizes of its inputs, and those of them that calls take.
    `hidden`: symbols that are not sizes themselves. Programs get them, too."""

    def __init__(self, nodes: Sequence[Node] = (), hidden: Iterable[Callable[[Read], Any]] = ()):
        places = {node: k for k, node in enumerate(n for n in nodes if n.op == "placeholder")}
        self.formulas: dict[Node, Callable[[Read], Any]] = {}
        for node in nodes:
            if node.target is torch.ops.aten.sym_size.int and node.args[0] in places and type(node.args[1]) is int:
                self.formulas[node] = size_of(places[node.args[0]], node.args[1])  # type: ignore[index]
            elif node.op == "call_function" and node.target in FUNCTIONS and not node.kwargs:
                parts = [self.formulas.get(x) if isinstance(x, Node) else constant(x) for x in node.args]
                if parts and None not in parts and any(isinstance(x, Node) for x in node.args):
                    self.formulas[node] = applied(node.target, parts)  # type: ignore[arg-type]
        self.needed = [n for n in self.formulas if any(user not in self.formulas for user in n.users)]
        self.readers = [*(self.formulas[node] for node in self.needed), *hidden]

    def of(self, inputs: Sequence[torch.Tensor]) -> list[Any]:
        return [reader(lambda k, dim: inputs[k].shape[dim]) for reader in self.readers]


def size_of(number: int, dim: int) -> Callable[[Read], int]:
    return lambda read: read(number, dim)


def constant(value: Any) -> Callable[[Read], Any]:
    return lambda read: value


def applied(function: Callable[..., Any], parts: Sequence[Callable[[Read], Any]]) -> Callable[[Read], Any]:
    return lambda read: function(*[part(read) for part in parts])


def open_inputs(inputs: Iterable[Any], ranges: Sequence[SizeRange]) -> OpenInputs | None:
    """Of the described inputs of an exported graph; None if all their sizes are constants."""
    shapes = {described.node: described.shape for described in inputs if hasattr(described, "node")}
    return OpenInputs(shapes, ranges) if ranges else None


def before_end(symbol: SizeRange) -> int | None:
    """The most for which a program is compiled. At the end itself it may be another: a slice is the whole tensor."""
    return symbol.most if symbol.most in (None, symbol.example) else symbol.most - 1  # type: ignore[operator]


class OpenInputs:
    """The inputs of a graph by number, and its symbols."""

    def __init__(self, shapes: Mapping[int, Sequence[int | SymbolicSize]], ranges: Sequence[SizeRange]):
        names = tuple([f"s{k}" for k in range(len(ranges))])
        numbers = {symbol.name: k for k, symbol in enumerate(ranges)}
        self.space = Space.within(
            {f"s{k}": (symbol.example, max(LEAST, symbol.least), before_end(symbol)) for k, symbol in enumerate(ranges)}
        )
        none = (0,) * len(ranges)

        def formula(size: int | SymbolicSize) -> int | Formula:
            if isinstance(size, int):
                return size
            powers = tuple([int(k == numbers[size.symbol]) for k in range(len(ranges))])
            added = ((size.added, none),) if size.added else ()
            return Formula(names, ((size.factor, powers), *added))

        self.shapes = {
            k: [formula(size) for size in shape]
            for k, shape in shapes.items()
            if any(isinstance(size, SymbolicSize) for size in shape)
        }

        self.hidden: list[Callable[[Read], Any]] = []
        """Reads the symbols that are not sizes of an input by themselves (`2*b`)."""
        self.hidden_sizes: list[Formula] = []
        places = [
            (k, dim, size)
            for k, shape in shapes.items()
            for dim, size in enumerate(shape)
            if isinstance(size, SymbolicSize)
        ]
        for symbol in ranges:
            own = [place for place in places if place[2].symbol == symbol.name]
            if all(size.factor != 1 for *_, size in own):
                k, dim, size = own[0]
                parts = applied(operator.sub, (size_of(k, dim), constant(size.added))), constant(size.factor)
                self.hidden.append(applied(operator.floordiv, parts))
                self.hidden_sizes.append(formula(SymbolicSize(symbol.name)))

    def facts(self, inputs: Sequence[torch.Tensor]) -> list[tuple]:
        """What differs between programs. Raises NoKey where none is for these inputs."""
        found = []
        for k, x in enumerate(inputs):
            facts = input_facts(x)
            if k in self.shapes:
                order = packed_order(tuple(x.shape), x.stride())
                if order is None or any(
                    n < LEAST for n, size in zip(x.shape, self.shapes[k], strict=True) if type(size) is not int
                ):
                    raise NoKey("sizes or strides")
                facts = (facts[0], order, *facts[3:])
            found.append(facts)
        return found

    def symbolic(
        self, inputs: Sequence[torch.Tensor], own: Sequence[torch.Tensor], numbers: SizeNumbers
    ) -> SymbolicExampleInputs:
        def number(reader: Callable[[Read], Any]) -> Callable[[Point], Any]:
            def at(point: Point) -> Any:
                def read(k: int, dim: int) -> int:
                    size = self.shapes[k][dim] if k in self.shapes else inputs_shape[k][dim]
                    return size if isinstance(size, int) else size.at(point)

                return reader(read)

            return at

        inputs_shape = [tuple(x.shape) for x in inputs]
        first = len(inputs) + len(own)
        values = {first + k: number(reader) for k, reader in enumerate(numbers.readers)}
        likes: list[Any] = [Like.of(x) if is_plain(x) else x for x in (*inputs, *own)]
        orders = {k: packed_order(tuple(inputs[k].shape), inputs[k].stride()) for k in self.shapes}
        return SymbolicExampleInputs(
            self.space,
            [*likes, *(value(self.space.points[0]) for value in values.values())],
            self.shapes,
            {k: order for k, order in orders.items() if order is not None},
            values,
            {first + len(numbers.needed) + k: size for k, size in enumerate(self.hidden_sizes)},
        )
