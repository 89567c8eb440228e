"""The compiler's graph IR: values, nodes in execution order, aliases, writes, and their printer.

    >>> print(graph)
    graph(x: f32[2, 3], w: f32[4, 3] state)
      view = view w, permute[1, 0]                           : f32[3, 4]{1, 3}
      mm = aten.mm.default x, view                           : f32[2, 4]
      return mm

A `Value` is a tensor without its data: a name and a type. A `Node` applies an operator to values and constants and has
one or more results. Graphs are not mutated: a pass walks the nodes and builds a new graph.

`tests/ir/parse_graph.py` reads printed text back. Only the functions inside a chosen library call have no text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch

from ..ops.operator_record import Op
from ..tensors.tensor_types import NumberType, TensorType
from ..tensors.views.view_maps import Map

RESERVED = ("_", "None", "True", "False", "inf", "nan")
"""Words that cannot name a value: they have another meaning in printed text."""

WIDTH = 120
"""Width of the printed text. If the inputs do not fit into one line, each gets its own."""


class Value:
    """A tensor: an input or a result of a node."""

    __slots__ = ("has_own_version", "is_state", "name", "node", "position", "type")

    def __init__(self, type: TensorType, name: str, node: Node | None = None, position: int = 0):
        self.type, self.name, self.node, self.position = type, name, node, position
        self.is_state = False
        """For an input: whether it is a module's parameter or buffer, which rarely changes between calls."""
        self.has_own_version = False
        """Whether it is ``x.data``: writes to it do not bump the version of ``x``."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    def __repr__(self) -> str:
        return self.name


class Node:
    """One use of an operator. `args` and `kwargs` hold values, constants, and lists and tuples of them."""

    __slots__ = ("args", "eager_strides", "kwargs", "line", "op", "operands", "results")

    def __init__(self, op: Op, args: tuple, kwargs: dict[str, Any], line: str | None = None):
        self.op, self.args, self.kwargs, self.line = op, args, kwargs, line
        self.operands: tuple[Value, ...] = tuple(values_in((args, tuple(kwargs.values())) if kwargs else args))
        """The values among its arguments, in order, with repetitions."""
        self.results: tuple[Value | None, ...] = ()
        self.eager_strides: tuple[tuple[int, ...], ...] | None = None
        """The operands' strides in eager, if the kernel accepts no others: see `ops.layouts_eager_accepts`."""

    @property
    def kernel(self) -> Any:
        """The function that runs the node: torch's kernel, or the record's replacement for it."""
        run = self.op.notes.get("run")
        return run and run(self) or self.op.target

    def __repr__(self) -> str:
        return print_node(self)


@dataclass(slots=True)
class Write:
    """A mutation of an input: at the end of the graph, `value` is copied into the input at this position."""

    input: int
    value: Value
    is_silent: bool = False
    """The write does not bump the tensor's version, as for running statistics. A backward that saved it stays valid."""

    def of(self, value: Value) -> Write:
        """The same write in another graph."""
        return Write(self.input, value, self.is_silent)


@dataclass(frozen=True, slots=True)
class Alias:
    """An output that shares the storage of an input: the input itself, or the view of it by `maps`, with this type."""

    input: int
    type: TensorType | None
    maps: tuple = ()
    is_detached: bool = False
    """No gradients flow through it, even if they flow through the input."""


class Graph:
    """Inputs, nodes in execution order, outputs (a value, an `Alias`, or a constant), and final writes to inputs."""

    __slots__ = ("inputs", "names", "nodes", "outputs", "writes")

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.outputs: list[Any] = []
        self.writes: list[Write] = []
        self.names: dict[str, int] = dict.fromkeys(RESERVED, 1)

    def input(self, type: TensorType, name: str, is_state: bool = False) -> Value:
        value = Value(type, self.fresh_name(name))
        value.is_state = is_state
        self.inputs.append(value)
        return value

    def add(
        self,
        op: Op,
        args: tuple,
        kwargs: dict[str, Any],
        types: TensorType | tuple[TensorType | None, ...],
        line: str | None = None,
        name: str | None = None,
    ) -> Any:
        """Append a node and return its result, or the tuple of its results."""
        node = Node(op, args, kwargs, line)
        name = name or short_name(op.name)
        if isinstance(types, (TensorType, NumberType)):
            value = Value(types, self.fresh_name(name), node)
            node.results = (value,)
            self.nodes.append(node)
            return value
        if len(types) == 1 and types[0] is not None:
            node.results = (Value(types[0], self.fresh_name(name), node),)
        else:
            node.results = tuple(
                [None if type is None else Value(type, self.fresh_name(name), node, k) for k, type in enumerate(types)]
            )
        self.nodes.append(node)
        return node.results

    def copy_input(self, value: Value) -> Value:
        """Copy an input of another graph, for a pass that builds a new graph."""
        return self.input(value.type, value.name, value.is_state)

    def copy_node(self, node: Node, env: dict[Value, Value], name: str | None = None) -> None:
        """Copy a node of another graph. `env` maps the values of that graph to those here; the results are added."""
        kwargs = {key: map_values(arg, env.__getitem__) for key, arg in node.kwargs.items()}
        types = tuple([value and value.type for value in node.results])
        made = self.add(node.op, map_values(node.args, env.__getitem__), kwargs, types, node.line, name)
        self.nodes[-1].eager_strides = node.eager_strides
        env.update((old, value) for old, value in zip(node.results, made, strict=True) if old is not None)

    def copy_ends(self, graph: Graph, env: Mapping[Value, Any]) -> None:
        """Copy the outputs and writes of another graph, whose nodes have been copied. `env` is as for `copy_node`."""
        self.outputs = map_values(graph.outputs, env.__getitem__)
        self.writes = [write.of(env[write.value]) for write in graph.writes]

    def leaving_values(self) -> list[Value]:
        """The values that outlive the nodes: outputs, and values written to inputs."""
        return [*values_in(tuple(self.outputs)), *(write.value for write in self.writes)]

    def readers(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, as often as they do."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.operands:
                found.setdefault(value, []).append(node)
        return found

    def break_reference_cycles(self) -> None:
        """For a graph that is not needed any more. Nodes and their values refer to each other, so they would wait for
        the garbage collector, which would traverse all of them after compilation."""
        for node in self.nodes:
            node.results = ()

    def fresh_name(self, name: str) -> str:
        """The name if it is free, otherwise with the first numeric suffix that makes it unique."""
        number, made = self.names.get(name, 0), name
        if number:
            while (made := f"{name}_{number}") in self.names:
                number += 1
            self.names[made] = 1
        self.names[name] = number + 1
        return made

    def __str__(self) -> str:
        return print_graph(self)


@functools.cache
def short_name(op: str) -> str:
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def values_in(tree: Any) -> list[Value]:
    """All values inside an argument, in order."""
    if type(tree) is Value:
        return [tree]
    found: list[Value] = []
    if isinstance(tree, (tuple, list)):
        for part in tree:
            kind = type(part)
            if kind is Value:
                found.append(part)
            elif kind not in LEAVES and isinstance(part, (tuple, list)):
                found += values_in(part)
    return found


def map_values(tree: Any, change: Callable[[Value], Any]) -> Any:
    """The same arguments with `change` applied to each value."""
    kind = type(tree)
    if kind is Value:
        return change(tree)
    if kind in LEAVES:
        return tree
    if isinstance(tree, tuple):
        return tuple(
            [
                change(part) if type(part) is Value else part if type(part) in LEAVES else map_values(part, change)
                for part in tree
            ]
        )
    if isinstance(tree, list):
        return [map_values(part, change) for part in tree]
    return tree


LEAVES = frozenset((int, float, bool, str, type(None), torch.dtype, *get_args(Map)))
"""The most frequent argument types that contain no value."""


def types_of(tree: Any) -> Any:
    """The same arguments with each value replaced by its type, for shape rules. A live scalar becomes its example."""
    return map_values(tree, seen_by_rules)


def seen_by_rules(value: Value) -> Any:
    return value.type.example if isinstance(value.type, NumberType) else value.type


def print_graph(graph: Graph) -> str:
    inputs = [f"{value.name}: {value.type}{' state' * value.is_state}" for value in graph.inputs]
    head = f"graph({', '.join(inputs)})"
    if len(head) > WIDTH:
        head = "".join(["graph(\n", *(f"    {text},\n" for text in inputs), ")"])
    lines = [head, *(f"  {print_node(node)}" for node in graph.nodes)]
    lines += [
        f"  write {'silently ' * write.is_silent}{graph.inputs[write.input].name} <- {write.value.name}"
        for write in graph.writes
    ]
    lines.append(f"  return {', '.join(print_output(graph, out) for out in graph.outputs)}".rstrip())
    return "\n".join(lines)


def print_node(node: Node) -> str:
    results = ", ".join("_" if value is None else value.name for value in node.results)
    args = [print_argument(arg) for arg in node.args]
    args += [f"{name}={print_argument(arg)}" for name, arg in node.kwargs.items()]
    text = f"{results} = {node.op.name}" if results else node.op.name
    text = " ".join([text, ", ".join(args)]) if args else text
    types = ", ".join("_" if value is None else str(value.type) for value in node.results)
    return f"{text:<70} : {types}" if types else text


def print_output(graph: Graph, out: Any) -> str:
    if not isinstance(out, Alias):
        return print_argument(out)
    maps = "".join(f" {step}" for step in out.maps)
    type = "" if out.type is None else f": {out.type}"
    word = "detached" if out.is_detached else "alias"
    return f"{word}({graph.inputs[out.input].name}{maps}{type})"


def print_argument(arg: Any) -> str:
    match arg:
        case Value():
            return arg.name
        case None | bool() | int() | float() | str():
            return repr(arg)
        case tuple() if arg and isinstance(arg[0], Map):
            return " ".join(map(str, arg))
        case tuple() | list():
            inside = ", ".join(map(print_argument, arg))
            return f"[{inside}]" if isinstance(arg, list) else f"({inside}{',' * (len(arg) == 1)})"
        case complex():
            return f"complex({arg.real}, {arg.imag})"
        case torch.device():
            return f"@{arg}"
        case torch.dtype() | torch.layout() | torch.memory_format():
            return str(arg)
    return f"<{getattr(arg, 'name', type(arg).__name__)}>"
