"""Pads the operands of GPU matmuls to aligned rows, and slices the result.

    y = linear x, w, b             =>    p = aten.constant_pad_nd.default x, [0, 6]
    x: bf16[4096, 1018]                  q = aten.constant_pad_nd.default w, [0, 6]
    w: bf16[4096, 1018]                  y = linear p, q, b

    w: bf16[50257, 768]            =>    q = aten.constant_pad_nd.default w, [0, 0, 0, 7]
                                         r = linear x, q                     : bf16[4096, 50264]
                                         y = view r, slice[1: 0, 1, 50257]

Runs before calls are chosen, with the setting `shape_padding`. cuBLAS loads 16 bytes at once where every row starts at
a multiple of 16, and uses slower kernels otherwise. So the contiguous dimension of each operand and of the result is
padded. Results are exact: in the summed dimension zeros are multiplied by zeros, and other padding is sliced off.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ... import events
from ...ir.alias_analysis import alias_base
from ...ir.graph import Graph, Node, Value
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import LINEAR, VIEW
from ...ops.target_record import target_of
from ...tensors.device_facts import multiplies_in_tensor_cores
from ...tensors.tensor_types import TensorType
from ...tensors.views.view_maps import Permute, Slice

BATCHED = "aten.bmm.default"

FEWEST_OPERATIONS = 5e9
"""For smaller products, launching the padding kernels (about 12 microseconds) costs more than padding saves. An H100
computes 250 instead of 600 trillion operations a second without alignment."""

OPERATIONS_PER_BYTE = 256
"""With fewer operations for each byte that padding copies, padding costs more time than it saves. At the rates above,
and 2.5 TB/s, the break-even is at 170."""


def pad_matmul_operands(graph: Graph) -> Graph:
    return Padder(graph).run()


class Padder(Rewriter):
    optional = "pad_matmul_operands"

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.made: dict[tuple[Value, tuple[int, ...]], Value] = {}
        """Padded values. Several products may read one value, and backward reads those of forward."""
        self.leaving: set[Value] = set()
        for value in graph.leaving_values():
            source: Value | None = value
            while source is not None:
                self.leaving.add(source)
                source = alias_base(source)

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node.op is LINEAR and args[3] is None and args[4] is None:
            return self.product(node, args[:2], ("mk", "nk"), "mn", args[2])
        if node.op.name == BATCHED:
            return self.product(node, args, ("bmk", "bkn"), "bmn", None)
        return None

    def product(self, node: Node, operands: tuple, names: tuple[str, ...], result: str, bias: Value | None) -> Any:
        """`names` has a letter for each dimension: `k` is summed, and a linear layer's weight is `nk`."""
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
            copied += value.type.bytes  # type: ignore[union-attr]  # the caller receives it contiguous
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
            # A transposed value is padded before the transposition.
            dims = node.args[1][0].dims
            source = self.padded(node.args[0], tuple(more[dims.index(dim)] for dim in range(len(dims))))
            return self.build.permute(source, dims)
        return self.build("constant_pad_nd", value, [n for amount in reversed(more) for n in (0, amount)])


def missing(types: list[TensorType], names: tuple[str, ...], sizes: dict[str, int], result: str) -> dict[str, int]:
    """The padding that the contiguous dimensions of the operands and the result need."""
    target, dtype = target_of(types[0].device), types[0].dtype
    if target is None or not target.aligned or not multiplies_in_tensor_cores(dtype):
        return {}
    step = target.aligned // dtype.itemsize
    along = {line_of(type, name) for type, name in zip(types, names, strict=True)} | {result[-1]}
    return {letter: -sizes[letter] % step for letter in sorted(along) if sizes[letter] % step}


def line_of(type: TensorType, name: str) -> str:
    """The contiguous dimension of a matrix: its columns, unless it is transposed."""
    return name[-2] if type.stride[-2] == 1 and type.stride[-1] != 1 else name[-1]


def amounts(name: str, short: dict[str, int]) -> tuple[int, ...]:
    return tuple(short.get(letter, 0) for letter in name)
