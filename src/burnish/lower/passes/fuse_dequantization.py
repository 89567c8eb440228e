"""Fuses the dequantization of a weight into the product that reads it, so that the weight is never computed in memory.

f  = aten._to_copy.default q, dtype=torch.float32
w  = aten.mul.Tensor f, s                  =>    y = quantized_linear x, q, s, None, b, 8, K, 0
y  = linear x, w, b, None, None

Any chain of conversions, views, and additions or multiplications of numbers or of tensors with one element for each row
or for each group of a row. Of 4 bits, two in a byte: the low and the high half stacked along the row. A scale after the
product, one for each output, is part of it too. Sums and scales are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from ...ir.graph import Graph, Node, Value, values_in
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import LINEAR, QUANTIZED_LINEAR, VIEW
from ...tensors.dtypes import SINGLES
from ...tensors.views.view_maps import Reshape
from .affine_dequantization import AffineWeight, Coefficient, affine_of

SMALLEST_GROUP = 8
"""Elements that share a scale. With fewer, the scales are as large as the weight."""

LARGEST_OFFSET = 128


PACKED_BYTES = "aten._weight_int8pack_mm.default"
"""torch's own product with a weight of int8 [N, K] and scales [N]."""


def is_taken(x: Value) -> bool:
    return x.dtype in SINGLES and x.type.is_on_host and x.ndim == 2 and 0 not in x.shape


def fuse_dequantization(graph: Graph) -> Graph:
    """The same graph where there is nothing to fuse: most have no integers."""
    if not any(value.dtype in (torch.int8, torch.uint8) for node in graph.nodes for value in node.operands):
        return graph
    return DequantizationFuser(graph).run()


class DequantizationFuser(Rewriter):
    optional = "fuse_dequantization"

    def begin(self) -> None:
        self.uses = Counter(value for node in self.old.nodes for value in node.operands)
        self.uses.update(values_in(tuple(self.old.outputs)))
        self.uses.update(write.value for write in self.old.writes)

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node.op is LINEAR and args[3] is None and args[4] is None:
            return self.product(*args[:3])
        if node.op.name == "aten.mul.Tensor":
            return self.scaled(node, args)
        if node.op.name == PACKED_BYTES and is_taken(args[0]):
            x, weight, scales = args
            column = self.build.reshape(scales, (weight.shape[0], 1))
            return self.build.apply(QUANTIZED_LINEAR, (x, weight, column, None, None, 8, x.shape[1], 0))
        return None

    def product(self, x: Value, weight: Value, bias: Value | None) -> Value | None:
        found = affine_of(weight) if is_taken(x) else None
        if found is None or found.group < SMALLEST_GROUP:
            return None
        made = self.scale_and_shift(found)
        if made is None:
            return None
        scales, shifts, offset = made
        outputs, depth = weight.shape
        integers = self.build.reshape(found.integers, (outputs, depth * found.bits // 8))
        return self.build.apply(QUANTIZED_LINEAR, (x, integers, scales, shifts, bias, found.bits, found.group, offset))

    def scale_and_shift(self, found: AffineWeight) -> tuple[Value | None, Value | None, int] | None:
        """`(q - offset) * scale + shift`, of the steps from q to the weight. None where the offset is too large."""
        scale: Value | None = None
        shift: Value | None = None
        offset = 0.0
        for kind, operand in found.steps:
            is_number = not isinstance(operand, Coefficient)
            if kind == "mul":
                factor = operand if is_number else self.coefficient(found, operand)
                scale = self.times(found, scale, factor)
                shift = None if shift is None else self.times(found, shift, factor)
            elif is_number and scale is None and shift is None and float(operand).is_integer():
                offset += operand if kind == "sub" else -operand
            else:
                shift = self.plus(found, shift, operand if is_number else self.coefficient(found, operand), kind)
        return (scale, shift, int(offset)) if abs(offset) <= LARGEST_OFFSET else None

    def times(self, found: AffineWeight, value: Value | None, factor: Any) -> Value:
        if value is None:
            return factor if isinstance(factor, Value) else self.filled(found, factor)
        return self.build("mul.Tensor", self.float32(value), self.float32(factor))

    def plus(self, found: AffineWeight, value: Value | None, term: Any, kind: str) -> Value:
        if value is not None:
            return self.build(f"{kind}.Tensor", self.float32(value), self.float32(term))
        if not isinstance(term, Value):
            return self.filled(found, term if kind == "add" else -term)
        return term if kind == "add" else self.build("neg", self.float32(term))

    def float32(self, value: Any) -> Any:
        return self.build.convert(value, torch.float32) if isinstance(value, Value) else value

    def filled(self, found: AffineWeight, number: float) -> Value:
        return self.build.full(found.shape, float(number), found.integers.type, torch.float32)

    def coefficient(self, found: AffineWeight, operand: Coefficient) -> Value:
        return self.build.view(operand.value, *found.maps_of(operand))

    def scaled(self, node: Node, args: tuple) -> Value | None:
        """A scale of the product's outputs, where the product has none yet."""
        for product, factor, old in ((*args, node.args[0]), (*args[::-1], node.args[1])):
            if not isinstance(product, Value) or not isinstance(factor, Value):
                return None
            source = self.only_read_here(product, old)
            if source is None or source.dtype is not node.results[0].dtype or factor.dtype not in SINGLES:  # type: ignore
                continue
            x, weight, scales, shifts, bias, *numbers = source.node.args  # type: ignore[union-attr]
            outputs = source.shape[1]
            is_row = factor.ndim > 0 and factor.shape[-1] == outputs == factor.type.numel
            if not is_row or scales is not None or shifts is not None or bias is not None:
                continue
            column = self.build.reshape(factor, (outputs, 1))
            bits, _, offset = numbers
            made = self.build.apply(QUANTIZED_LINEAR, (x, weight, column, None, None, bits, x.shape[1], offset))
            return self.build.reshape(made, node.results[0].shape)  # type: ignore[union-attr]
        return None

    def only_read_here(self, value: Value, old: Value) -> Value | None:
        """The product whose rows a value is, if nothing else reads it."""
        columns = value.shape[-1] if value.ndim else 0
        while value.node is not None and self.uses[old] == 1:
            if value.node.op is QUANTIZED_LINEAR:
                return value
            if value.node.op is not VIEW or old.node is None or not old.node.args or old.node.op is not VIEW:
                return None
            if not all(isinstance(step, Reshape) and step.shape[-1:] == (columns,) for step in value.node.args[1]):
                return None
            value, old = value.node.args[0], old.node.args[0]
        return None
