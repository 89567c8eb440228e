"""What an element of a value is computed from: operator rules joined into one scalar expression.

    y = gelu(x + b)  at [i0, i1]    =>    gelu(add(b0[768*i0 + i1], b1[i1]))

`ExpressionWriter.at(value, index)` follows the graph upwards, through element-wise operators and views, until it comes
to values that its caller has an answer for: what lies in a buffer, what another part of the loop made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.graph import Node, Value
from ..ops.elementwise import converted, element
from ..ops.prims import CONVERT, RESTRIDE, VIEW
from ..ops.record import NoRule, Pointwise
from ..ops.scalar import Scalar, const
from ..ops.scalar import index as loop_variable
from ..tensors.indices import Affine, Index, constant
from ..tensors.types import NAMES
from ..tensors.views import source_index


class NotAffine(Exception):
    """An index is no affine function of the loop's variables. `cut` says which variable to cut to make it one."""

    def __init__(self, value: Value, cut: tuple[int, int] | None):
        super().__init__(f"the elements of {value} are not read in a regular pattern")
        self.value, self.cut = value, cut


Answer = Callable[[Value, Index], "Scalar | None"]


class ExpressionWriter:
    """Writes expressions over a loop with `extents`. `answer` gives what is not computed here, or None."""

    def __init__(self, extents: tuple[int, ...], answer: Answer):
        self.extents, self.answer = extents, answer
        self.written: dict[tuple[Value, Index], Scalar] = {}

    def at(self, value: Value, index: Index) -> Scalar:
        key = (value, index)
        found = self.written.get(key)
        if found is None:
            found = self.answer(value, index)
            if found is None:
                found = self.computed(value, index)
            self.written[key] = found
        return found

    def computed(self, value: Value, index: Index) -> Scalar:
        node = value.node
        assert node is not None, f"{value} is an input and has no answer"
        if node.op is VIEW:
            return self.at(node.args[0], viewed_index(value, node, index, self.extents))
        assert isinstance(node.op.rule, Pointwise), node
        return pointwise_scalar(node, lambda arg: self.at(arg, broadcast_index(arg, index, len(self.extents))))


def viewed_index(value: Value, node: Node, index: Index, extents: tuple[int, ...]) -> Index:
    hints: list[tuple[int, int]] = []
    found = source_index(node.args[1], index, node.args[0].shape, extents, hints)
    if found is None:
        raise NotAffine(value, hints[0] if hints else None)
    return found


def broadcast_index(value: Value, index: Index, count: int) -> Index:
    """The index of an operand where the result's is `index`."""
    missing = len(index) - value.ndim
    return tuple(x if size != 1 else constant(0, count) for size, x in zip(value.shape, index[missing:], strict=True))


def pointwise_scalar(node: Node, operand: Callable[[Value], Scalar]) -> Scalar:
    """An element-wise operator's rule, its operands converted before and its result after."""
    result = node.results[0]
    assert result is not None
    if node.op is CONVERT or node.op is RESTRIDE:
        return converted(operand(node.args[0]), NAMES[result.dtype])

    def given(arg: Any) -> Any:
        return operand(arg) if isinstance(arg, Value) else arg

    types = [arg.type if isinstance(arg, Value) else arg for arg in node.args]
    kwargs = {name: given(arg) for name, arg in node.kwargs.items()}
    return element(node.op, [given(arg) for arg in node.args], kwargs, types, result.type)


def affine_scalar(x: Affine) -> Scalar:
    """The value of an index, i64."""
    total = const(x.offset, "i64")
    for k, c in enumerate(x.coefficients):
        if c:
            total = total + loop_variable(k) * const(c, "i64")
    return total


def rule_fails(node: Node) -> str | None:
    """Try an element-wise rule on its own: why it cannot be used here, if it cannot."""
    from ..ops.scalar import Access, load

    result = node.results[0]
    for value in (*node.operands, result):
        if value is None or value.dtype not in NAMES or NAMES[value.dtype].startswith("c"):
            return f"{node.op.name} of {value.dtype if value else None}"
    numbers: dict[Value, Scalar] = {}

    def placeholder(value: Value) -> Scalar:
        return numbers.setdefault(value, load(NAMES[value.dtype], Access(len(numbers), 0, ())))
    try:
        made = pointwise_scalar(node, placeholder)
    except NoRule as error:
        return f"{node.op.name}: {error}"
    if made.dtype != NAMES[result.dtype]:  # type: ignore[union-attr]
        return f"{node.op.name} gives {made.dtype}"
    return None


__all__ = ["ExpressionWriter", "NotAffine", "affine_scalar", "broadcast_index", "pointwise_scalar", "rule_fails",
           "viewed_index"]
