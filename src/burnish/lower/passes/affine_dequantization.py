"""Recognizes a weight that is computed from integers: `(q - offset) * scale + shift`, in any order of views.

    found = affine_of(weight)
    found.integers, found.bits      the integers in memory, and whether there are two in each byte
    found.steps                     [("sub", 8), ("mul", Coefficient), ("add", Coefficient)], from the integers outwards
    found.maps_of(coefficient)      the views that make it [outputs, groups]

Each dimension of a value is a list of axes: factors of the weight's rows or columns. Walking from the weight to its
integers, views regroup the axes and split them: `reshape[N, K / 32, 32]` splits the columns. An operand of a
multiplication depends on the axes of those of its dimensions that are not broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import torch

from ...ir.graph import Node, Value
from ...ops.burnish_primitives import CONVERT, VIEW
from ...tensors.dtypes import SINGLES
from ...tensors.views.view_maps import Expand, Map, Permute, Reshape

BYTES = (torch.int8, torch.uint8)
WIDER = (*SINGLES, torch.int16, torch.int32, torch.int64)
"""The dtypes that hold every byte. The rounding of a scale to one of them is left out."""

ARITHMETIC = {
    "aten.mul.Tensor": "mul",
    "aten.mul.Scalar": "mul",
    "aten.add.Tensor": "add",
    "aten.add.Scalar": "add",
    "aten.sub.Tensor": "sub",
    "aten.sub.Scalar": "sub",
}
SHIFTS = ("aten.__rshift__.Scalar", "aten.bitwise_right_shift.Tensor_Scalar")
MASKS = ("aten.bitwise_and.Scalar",)


@dataclass(slots=True, eq=False)
class Axis:
    size: int
    parts: tuple[Axis, ...] = ()

    def leaves(self) -> Iterator[Axis]:
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


Dims = list[list[Axis]]


@dataclass(frozen=True, slots=True)
class Coefficient:
    value: Value
    dims: tuple[tuple[Axis, ...], ...]


@dataclass(slots=True)
class AffineWeight:
    rows: Axis
    columns: Axis
    integers: Value
    bits: int
    steps: list[tuple[str, Coefficient | float]] = field(default_factory=list)

    @property
    def groups(self) -> list[Axis]:
        """The axes of the columns on which some coefficient depends, and those before them."""
        used = {leaf for axis in self.used() for leaf in axis.leaves()}
        columns = list(self.columns.leaves())
        last = max((k for k, axis in enumerate(columns) if axis in used), default=-1)
        return columns[: last + 1]

    def used(self) -> Iterator[Axis]:
        for _, operand in self.steps:
            if isinstance(operand, Coefficient):
                for dim in operand.dims:
                    yield from dim

    @property
    def shape(self) -> tuple[int, int]:
        """Of the coefficients."""
        return self.rows.size, prod(axis.size for axis in self.groups)

    @property
    def group(self) -> int:
        return self.columns.size // self.shape[1]

    def maps_of(self, coefficient: Coefficient) -> tuple[Map, ...]:
        mine = [leaf for dim in coefficient.dims for axis in dim for leaf in axis.leaves()]
        every = [*self.rows.leaves(), *self.groups]
        order = sorted(range(len(mine)), key=lambda k: every.index(mine[k]))
        return (
            Reshape(tuple(axis.size for axis in mine)),
            Permute(tuple(order)),
            Reshape(tuple(axis.size if axis in mine else 1 for axis in every)),
            Expand(tuple(axis.size for axis in every)),
            Reshape(self.shape),
        )


def affine_of(weight: Value) -> AffineWeight | None:
    """None where a weight of two dimensions is not computed from integers in this way."""
    rows, columns = Axis(weight.shape[0]), Axis(weight.shape[1])
    found = walk(weight, [[rows], [columns]], rows, columns)
    if found is None:
        return None
    return found


def walk(value: Value, dims: Dims, rows: Axis, columns: Axis) -> AffineWeight | None:
    node = value.node
    if value.dtype not in (*WIDER, *BYTES):
        return None
    found = None
    if node is not None and node.op.name in ARITHMETIC:
        found = arithmetic(node, dims, rows, columns)
    elif node is not None and is_conversion(node):
        found = walk(node.args[0], dims, rows, columns)
        if found is not None and value.dtype not in WIDER and not is_small(found):
            found = None
    elif node is not None and node.op is VIEW:
        below = through_views(node, dims, is_coefficient=False)
        found = None if below is None else walk(node.args[0], below, rows, columns)
    if found is None and value.dtype in BYTES:
        found = integers(value, dims, rows, columns)
    return found


def is_small(found: AffineWeight) -> bool:
    """Whether a signed byte holds the numbers: of 4 bits, with little added."""
    added = sum(abs(operand) if isinstance(operand, (int, float)) else math.inf for _, operand in found.steps)
    return found.bits == 4 and added <= 100 and all(kind != "mul" for kind, _ in found.steps)


def is_conversion(node: Node) -> bool:
    """A copy, or a conversion that does not round to integers."""
    if node.op.name == "aten.clone.default":
        return True
    is_cast = node.op is CONVERT or node.op.name == "aten._to_copy.default"
    return is_cast and (node.results[0].dtype.is_floating_point or not node.args[0].dtype.is_floating_point)  # type: ignore


def is_widening(node: Node) -> bool:
    """A conversion that loses nothing, and that the kernel makes as well."""
    if not is_conversion(node):
        return False
    source, target = node.args[0].dtype, node.results[0].dtype  # type: ignore[union-attr]
    return source is target or target is torch.float32 and source in SINGLES


def arithmetic(node: Node, dims: Dims, rows: Axis, columns: Axis) -> AffineWeight | None:
    result, kind = node.results[0], ARITHMETIC[node.op.name]
    if node.kwargs.get("alpha", 1) != 1 or len(node.args) > 2 or result is None or result.dtype is torch.uint8:
        return None
    a, b = node.args[:2]
    for inner, operand in ((a, b), (b, a))[: 1 if kind == "sub" else 2]:
        if not isinstance(inner, Value) or inner.shape != result.shape:
            continue
        found = walk(inner, dims, rows, columns)
        if found is None:
            continue
        step = coefficient(operand, dims) if isinstance(operand, Value) else operand
        if step is None or isinstance(step, (bool, complex)):
            return None
        found.steps.append((kind, step))
        return found if result.dtype in WIDER or is_small(found) else None  # in bytes, the result may wrap around
    return None


def coefficient(value: Value, dims: Dims) -> Coefficient | None:
    """An operand that is broadcast to dimensions with these axes."""
    if value.dtype not in (*WIDER, *BYTES):
        return None
    aligned = dims[len(dims) - value.ndim :] if value.ndim else []
    mine = [axes if size > 1 else [] for size, axes in zip(value.shape, aligned, strict=True)]
    while (node := value.node) is not None and (node.op is VIEW or is_widening(node)):
        below = through_views(node, mine, is_coefficient=True) if node.op is VIEW else mine
        if below is None:
            break
        value, mine = node.args[0], below
    return Coefficient(value, tuple(map(tuple, mine)))


def through_views(node: Node, dims: Dims, is_coefficient: bool) -> Dims | None:
    """The axes of a view's source. Only a coefficient may be expanded."""
    source, maps = node.args
    shapes = [source.shape]
    for step in maps:
        shapes.append(step.result_shape(shapes[-1]))
    for step, shape in zip(reversed(maps), reversed(shapes[:-1]), strict=True):
        match step:
            case Reshape():
                found = regrouped([axis for dim in dims for axis in dim], shape)
                if found is None:
                    return None
                dims = found
            case Permute():
                dims = [dims[step.dims.index(k)] for k in range(len(shape))]
            case Expand() if is_coefficient:
                added = len(step.shape) - len(shape)
                dims = [axes if size > 1 else [] for axes, size in zip(dims[added:], shape, strict=True)]
            case _:
                return None
    return dims


def regrouped(axes: Sequence[Axis], shape: tuple[int, ...]) -> Dims | None:
    """The axes as dimensions with these sizes, in the same order. Axes are split where a size is a part of one."""
    left = [leaf for axis in axes for leaf in axis.leaves() if leaf.size > 1]
    dims: Dims = []
    for size in shape:
        mine: list[Axis] = []
        while size > 1:
            if not left:
                return None
            axis = left.pop(0)
            if size % axis.size:
                if axis.size % size:
                    return None
                axis.parts = Axis(size), Axis(axis.size // size)
                left.insert(0, axis.parts[1])
                axis = axis.parts[0]
            mine.append(axis)
            size //= axis.size
        dims.append(mine)
    return None if left else dims


def integers(value: Value, dims: Dims, rows: Axis, columns: Axis) -> AffineWeight | None:
    """Where the integers are in memory, in the order of the weight."""
    bits, source = 8, halves_of(value)
    if source is not None:
        if [leaf.size for axis in dims[-1] for leaf in axis.leaves()] != [2]:
            return None
        bits, value, dims = 4, source, dims[:-1]
        while value.node is not None and value.node.op is VIEW:
            below = through_views(value.node, dims, is_coefficient=False)
            if below is None:
                break
            value, dims = value.node.args[0], below
    order = [leaf for dim in dims for axis in dim for leaf in axis.leaves() if leaf.size > 1]
    wanted = [leaf for axis in (rows, columns) for leaf in axis.leaves() if leaf.size > 1]
    if bits == 4 and (not wanted or wanted[-1].size != 2 or wanted.pop() in order):
        return None
    return AffineWeight(rows, columns, value, bits) if order == wanted else None


def halves_of(value: Value) -> Value | None:
    """The bytes whose low and high halves are stacked along a last dimension of two."""
    node = value.node
    if node is None or node.op.name not in ("aten.stack.default", "aten.cat.default"):
        return None
    parts, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
    if len(parts) != 2 or value.shape[-1] != 2 or dim not in (-1, value.ndim - 1):
        return None
    if node.op.name == "aten.cat.default":
        parts = [before_view(part) for part in parts]
    low, high = (half_of(part) for part in parts)
    return low[0] if low is not None and high is not None and low == (high[0], 0) and high[1] == 1 else None


def before_view(value: Value) -> Value:
    node = value.node
    is_added = node is not None and node.op is VIEW and value.shape == (*node.args[0].shape, 1)
    return node.args[0] if is_added else value  # type: ignore[union-attr]


def half_of(value: Value) -> tuple[Value, int] | None:
    """A tensor of bytes, and which half of each this is."""
    node = value.node
    if node is None:
        return None
    if node.op.name in SHIFTS and node.args[1] == 4 and node.args[0].dtype is torch.uint8:
        return node.args[0], 1
    if node.op.name in MASKS and node.args[1] == 15:
        inner = half_of(node.args[0])
        if inner is not None and inner[1] == 1:
            return inner
        return (node.args[0], 0) if node.args[0].dtype is torch.uint8 else None
    return None
