"""Epilogue fusion: element-wise work on the result of a product is done before the result is stored.

    y = conv x, w, b, ...
    s = aten.add.Tensor y, identity        =>     residual identity, epilogue max(b0[], 0.0): all in the call
    z = aten.relu.default s

The chain is found before the graph is rewritten: each node is the only reader of the one before it. The residual is an
addition directly after the product. Operators of one tensor follow. The result of a matmul may be reshaped in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...ir.graph import Node, Value
from ...ops.burnish_primitives import LINEAR, RESTRIDE, VIEW
from ...ops.operator_record import Pointwise
from ...ops.scalar_ir import Access, Scalar, load, walk
from ...tensors.dtypes import NAMES, PAIRED
from ...tensors.views.view_maps import Reshape
from ..loops.build_expressions import pointwise_scalar, rule_fails

SUMS = {dtype: load(NAMES[dtype], Access(0, 0, ())) for dtype in (torch.float32, *PAIRED)}
"""The element of the product, in an epilogue's expression. A half precision is rounded before the epilogue reads it."""

LONGEST = 400
"""Most scalar operations in an epilogue: the code of each tile contains it."""

ELSEWHERE = {"index", "lgamma", "atan2", "pow"}
"""Operations that depend on more than the sum, or call the C library."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    nodes: tuple[Node, ...]
    """All nodes of the chain; the last one makes the result."""
    residual: Value | None
    expression: Scalar | None
    """An expression of the element of the product, see `SUMS`."""

    @property
    def result(self) -> Value:
        value = self.nodes[-1].results[0]
        assert value is not None
        return value


def epilogue_of(node: Node, reader_of: Callable[[Value], Node | None]) -> Epilogue | None:
    """`reader_of` returns a value's only reader. None where there is no epilogue."""
    value = node.results[0]
    assert value is not None
    dtype = value.dtype
    if dtype not in SUMS:
        return None
    product = SUMS[dtype]
    made: list[Node] = []
    length, residual, expression = 0, None, product
    while (reader := reader_of(value)) is not None:
        result = reader.results[0] if len(reader.results) == 1 else None
        if result is None or result.dtype is not dtype:
            break
        if is_reshape(reader):
            if node.op is not LINEAR:
                break
        elif result.shape != value.shape or result.type.device != value.type.device:
            break
        elif (other := added_tensor(reader, value)) is not None:
            if residual is not None or expression is not product:
                break
            residual, length = other, len(made) + 1
        else:
            following = apply_elementwise(reader, value, expression)
            if following is None:
                break
            expression, length = following, len(made) + 1
        made.append(reader)
        value = result
    if not length:
        return None
    return Epilogue(tuple(made[:length]), residual, None if expression is product else expression)


def is_reshape(node: Node) -> bool:
    """Whether it reshapes a contiguous tensor, so that no element moves."""
    if node.op is not VIEW or not all(isinstance(step, Reshape) for step in node.args[1]):
        return False
    result = node.results[0]
    return node.args[0].type.is_contiguous and result is not None and result.type.is_contiguous


def added_tensor(node: Node, value: Value) -> Value | None:
    """The tensor of the same shape that a node adds to the value."""
    if node.op.name != "aten.add.Tensor" or node.kwargs.get("alpha", 1) != 1:
        return None
    a, b = node.args[:2]
    other = b if a is value else a
    if not isinstance(other, Value) or other is value or other.shape != value.shape:
        return None
    return other if other.dtype is value.dtype else None


def apply_elementwise(node: Node, value: Value, expression: Scalar) -> Scalar | None:
    """The expression after an element-wise operator whose only tensor is this value."""
    if not isinstance(node.op.rule, Pointwise) or node.op is RESTRIDE or set(node.operands) != {value}:
        return None
    if rule_fails(node) is not None:
        return None
    made = pointwise_scalar(node, lambda _: expression)
    if sum(1 for _ in walk(made)) > LONGEST or any(x.op in ELSEWHERE for x in walk(made)):
        return None
    return made
