"""Operands of GPU matmuls are padded to aligned rows, and the result is sliced.

    y = linear x, w, b             =>    p = aten.constant_pad_nd.default x, [0, 6]
    x: bf16[4096, 1018]                  q = aten.constant_pad_nd.default w, [0, 6]
    w: bf16[4096, 1018]                  y = linear p, q, b

    w: bf16[50257, 768]            =>    q = aten.constant_pad_nd.default w, [0, 0, 0, 7]
                                         r = linear x, q                     : bf16[4096, 50264]
                                         y = view r, slice[1: 0, 1, 50257]

Done before calls are chosen, with the setting `shape_padding`. cuBLAS loads 16 bytes at once where every row begins at
a multiple of that, and takes slower kernels where one does not. So what counts is the dimension along which a matrix
lies, of each operand and of the result. Results are exact: along the dimension that is summed up zeros meet zeros, and
what else is padded is cut away.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ... import events
from ...ir.alias_analysis import source_of
from ...ir.graph import Graph, Node, Value, values_in
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import LINEAR, VIEW
from ...tensors.float32_precision import multiplies_in_tensor_cores
from ...tensors.tensor_types import TensorType
from ...tensors.view_maps import Permute, Slice
from ..target_machines import machine_of

BATCHED = "aten.bmm.default"

FEWEST_OPERATIONS = 5e9
"""Below, the time that is gained is less than what it takes to start the kernels that pad: about 12 microseconds, where
an H100 multiplies at 250 instead of 600 trillion operations a second."""

OPERATIONS_PER_BYTE = 256
"""A product with fewer operations for each byte that padding reads and writes would wait for memory longer than it
gains. At the rates above, and 2.5 TB/s, 170 are as long."""


def pad_matmul_operands(graph: Graph) -> Graph:
    return Padder(graph).run()


class Padder(Rewriter):
    optional = "pad_matmul_operands"

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.made: dict[tuple[Value, tuple[int, ...]], Value] = {}
        """What was padded. Several products may read one value, and backward reads what forward does."""
        self.leaving: set[Value] = set()
        for value in (*values_in(tuple(graph.outputs)), *(write.value for write in graph.writes)):
            source: Value | None = value
            while source is not None:
                self.leaving.add(source)
                source = source_of(source)

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node.op is LINEAR and args[3] is None and args[4] is None:
            return self.product(node, args[:2], ("mk", "nk"), "mn", args[2])
        if node.op.name == BATCHED:
            return self.product(node, args, ("bmk", "bkn"), "bmn", None)
        return None

    def product(self, node: Node, operands: tuple, names: tuple[str, ...], result: str, bias: Value | None) -> Any:
        """A letter for each dimension: `k` is summed up, and a linear layer's weight is `nk`."""
        types = [value.type for value in operands]
        sizes = {
            letter: size
            for name, type in zip(names, types, strict=True)
            for letter, size in zip(name, type.shape, strict=True)
        }
        short = missing(types, names, sizes, result)
        if not short or not self.is_worth(node, types, names, sizes, short):
            return None
        events.emit("lower.padded", text=f"padded by {short}: {node}")
        padded = [self.padded(value, amounts(name, short)) for value, name in zip(operands, names, strict=True)]
        if bias is not None:
            bias = self.padded(bias, amounts("n", short))
        made = self.build.apply(node.op, (*padded, bias, None, None) if node.op is LINEAR else tuple(padded))
        cut = [Slice(dim, 0, 1, sizes[letter]) for dim, letter in enumerate(result) if letter in short]
        return self.build.view(made, *cut)

    def is_worth(
        self, node: Node, types: list[TensorType], names: tuple[str, ...], sizes: dict[str, int], short: dict[str, int]
    ) -> bool:
        operations = 2 * prod(sizes.values())
        copied = sum(type.bytes for type, name in zip(types, names, strict=True) if any(amounts(name, short)))
        value = node.results[0]
        if value in self.leaving and any(letter in short for letter in "mn"):
            copied += value.type.bytes  # type: ignore[union-attr]  # it is laid together for whoever is given it
        return operations >= FEWEST_OPERATIONS and operations >= OPERATIONS_PER_BYTE * 2 * copied

    def padded(self, value: Value, more: tuple[int, ...]) -> Value:
        if not any(more):
            return value
        key = value, more
        if key not in self.made:
            self.made[key] = self.pad(value, more)
        return self.made[key]

    def pad(self, value: Value, more: tuple[int, ...]) -> Value:
        node = value.node
        if node is not None and node.op is VIEW and len(node.args[1]) == 1 and isinstance(node.args[1][0], Permute):
            # What is turned over is padded as it lies, and turned over again.
            dims = node.args[1][0].dims
            source = self.padded(node.args[0], tuple(more[dims.index(dim)] for dim in range(len(dims))))
            return self.build.permute(source, dims)
        return self.build("constant_pad_nd", value, [n for amount in reversed(more) for n in (0, amount)])


def missing(types: list[TensorType], names: tuple[str, ...], sizes: dict[str, int], result: str) -> dict[str, int]:
    """By how much each dimension is too short along which one of the matrices lies."""
    machine, dtype = machine_of(types[0].device), types[0].dtype
    if machine is None or not machine.aligned or not multiplies_in_tensor_cores(dtype):
        return {}
    step = machine.aligned // dtype.itemsize
    along = {line_of(type, name) for type, name in zip(types, names, strict=True)} | {result[-1]}
    return {letter: -sizes[letter] % step for letter in sorted(along) if sizes[letter] % step}


def line_of(type: TensorType, name: str) -> str:
    """The dimension along which a matrix lies: its columns, unless it is turned over."""
    return name[-2] if type.stride[-2] == 1 and type.stride[-1] != 1 else name[-1]


def amounts(name: str, short: dict[str, int]) -> tuple[int, ...]:
    return tuple(short.get(letter, 0) for letter in name)


__all__ = ["pad_matmul_operands"]
