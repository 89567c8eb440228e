"""Builds scalar expressions: composes operator rules into one expression for an element of a value.

    y = gelu(x + b)  at [i0, i1]    =>    gelu(add(b0[768*i0 + i1], b1[i1]))

`ExpressionWriter.at(value, index)` follows the graph upwards through element-wise operators and views. It stops at
values that the caller's `answer` supplies: values in a buffer, or made by another part of the loop.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from ...ir.graph import Node, Value, seen_by_rules, types_of
from ...ops.burnish_primitives import ADD_AT, CONVERT, FETCH, RESTRIDE, VIEW
from ...ops.elementwise.elementwise_record import converted, element
from ...ops.operator_record import NoRule, Pointwise
from ...ops.random_numbers import BITS_OF
from ...ops.scalar_ir import Access, Scalar, const, load, maximum, minimum, random_bits, select, within
from ...ops.scalar_ir import index as loop_variable
from ...ops.shapes.concat_lowering import ConcatRule, OperandPart
from ...ops.shapes.element_from_index_rules import ElementPosition, IndexFunction
from ...tensors.dtypes import NAMES, has_loops
from ...tensors.tensor_types import NumberType
from ...tensors.views.affine_indices import Affine, Index, constant
from ...tensors.views.view_maps import Maps, source_index
from ..fusion.split_concat_loops import part_at


class NotAffine(Exception):
    """An index is not an affine function of the loop's variables. `cut` says which variable to split to make it one."""

    def __init__(self, value: Value, cut: tuple[int, int] | None):
        super().__init__(f"the elements of {value} are not read in a regular pattern")
        self.value, self.cut = value, cut


DEEPEST = 32
"""Deepest operator chain that is built recursively."""
LONGEST = 1024
"""Most operators in one expression: compile time grows with the square of their number."""

Answer = Callable[[Value, Index], "Scalar | None"]
Fetch = Callable[[Value, tuple[Affine | Scalar, ...]], Scalar]


class ExpressionWriter:
    """Builds expressions over a loop with `extents`. `answer` returns the expression of a value that is not computed
    here, or None. `fetch` loads an element of a value in memory at a computed index."""

    def __init__(self, extents: tuple[int, ...], answer: Answer, fetch: Fetch):
        self.extents, self.answer, self.fetch = extents, answer, fetch
        self.written: dict[tuple[Value, Index], Scalar] = {}
        self.depth = 0

    def at(self, value: Value, index: Index) -> Scalar:
        key = (value, index)
        found = self.written.get(key)
        if found is None:
            found = self.answer(value, index)
            if found is None:
                self.depth += 1
                try:
                    if self.depth > DEEPEST:
                        self.write_sources(value, index)
                    found = self.computed(value, index)
                finally:
                    self.depth -= 1
            self.written[key] = found
        return found

    def write_sources(self, value: Value, index: Index) -> None:
        """Builds the operands of a long chain first, without recursion, which Python's stack limits."""
        waiting, met = [(value, index, False)], set()
        while waiting:
            value, index, is_ready = waiting.pop()
            if (value, index) in self.written:
                continue
            if is_ready:
                if waiting:  # not for the value itself
                    self.written[value, index] = self.computed(value, index)
            elif (value, index) not in met:
                met.add((value, index))
                if len(met) > LONGEST:
                    raise RecursionError(f"more than {LONGEST} operators in one expression")
                found = self.answer(value, index)
                if found is not None:
                    self.written[value, index] = found
                    continue
                waiting.append((value, index, True))
                waiting.extend(
                    (*source, False)
                    for source in reversed(sources(value, index, self.extents))
                    if source[1] is not None
                )

    def computed(self, value: Value, index: Index) -> Scalar:
        node = value.node
        assert node is not None, f"{value} is an input and has no answer"
        if node.op is VIEW:
            return self.at(node.args[0], viewed_index(value, node, index, self.extents))
        if isinstance(node.op.rule, ConcatRule):
            found = joined_source(value, node, index, self.extents)
            dtype = NAMES[value.dtype]
            return converted(self.at(*found), dtype) if isinstance(found, tuple) else const(found, dtype)
        if isinstance(node.op.rule, IndexFunction):
            return located_scalar(node, index, lambda arg: self.at(arg, index))
        if node.op is FETCH:
            source, places = node.args
            return self.fetch(source, self.places(places, index))
        if node.op is ADD_AT:
            return self.at(node.args[1], index)
        assert isinstance(node.op.rule, Pointwise), node
        if node.op is BITS_OF:
            # Numbered in row-major order of the elements, whatever order the loop walks them in.
            return random_bits(self.at(node.args[0], ()), affine_scalar(number_of(index, value.shape)))
        return pointwise_scalar(node, lambda arg: self.at(arg, broadcast_index(arg, index, len(self.extents))))

    def places(self, described: tuple, index: Index) -> tuple[Affine | Scalar, ...]:
        """The index of the fetched element in each dimension of the source."""
        return tuple(index[place] if isinstance(place, int) else self.place(index, *place) for place in described)

    def place(
        self, index: Index, picked: Value, dims: tuple[int, ...], size: int, wraps: bool, asserts: bool
    ) -> Scalar:
        """The index that is read, clamped to the source. With `asserts`, no check has run: the load checks it."""
        at = converted(self.at(picked, picked_index(picked, dims, index)), "i64")
        if wraps:
            at = select(at < 0, at + size, at)
        return within(at, size) if asserts else maximum(minimum(at, size - 1), 0)


def picked_index(picked: Value, dims: tuple[int, ...], index: Index) -> Index:
    return tuple(index[dim] if size != 1 else index[dim] * 0 for dim, size in zip(dims, picked.shape, strict=True))


def sources(value: Value, index: Index, extents: tuple[int, ...]) -> list[tuple[Value, Index | None]]:
    """The elements that an element of a loop value is computed from. Index None: from anywhere in that value."""
    node = value.node
    assert node is not None
    if node.op is VIEW:
        return [(node.args[0], viewed_index(value, node, index, extents))]
    if isinstance(node.op.rule, ConcatRule):
        found = joined_source(value, node, index, extents)
        return [found] if isinstance(found, tuple) else []
    if isinstance(node.op.rule, IndexFunction) and not node.op.rule.reads:
        return []
    if node.op is FETCH or node.op is ADD_AT:
        picks = [place for place in node.args[-1] if not isinstance(place, int)]
        added = [(node.args[1], index)] if node.op is ADD_AT else []
        return [
            (node.args[0], None),
            *added,
            *((picked, picked_index(picked, dims, index)) for picked, dims, *_ in picks),
        ]
    return [(arg, broadcast_index(arg, index, len(extents))) for arg in node.operands]


def viewed_index(value: Value, node: Node, index: Index, extents: tuple[int, ...]) -> Index:
    return index_through(node.args[1], value, node.args[0], index, extents)


def index_through(maps: Maps, value: Value, source: Value, index: Index, extents: tuple[int, ...]) -> Index:
    hints: list[tuple[int, int]] = []
    found = source_index(maps, index, source.shape, extents, hints)
    if found is None:
        raise NotAffine(value, hints[0] if hints else None)
    return found


def joined_source(
    value: Value, node: Node, index: Index, extents: tuple[int, ...]
) -> tuple[Value, Index] | bool | int | float:
    """The source of an element of a concatenated value: an element of another value, or a number."""
    part, inside = part_at(value, node.op.rule.rule(*node.args, **node.kwargs), index, extents)  # type: ignore
    if not isinstance(part, OperandPart):
        return part  # type: ignore[return-value]
    return part.operand, index_through(part.maps, value, part.operand, inside, extents)


def broadcast_index(value: Value, index: Index, count: int) -> Index:
    """The index of a broadcast operand for the result's `index`."""
    shape = value.type.shape
    inner = index[len(index) - len(shape) :]
    if 1 not in shape:
        return inner
    zero = constant(0, count)
    return tuple([x if size != 1 else zero for size, x in zip(shape, inner, strict=True)])


def pointwise_scalar(node: Node, operand: Callable[[Value], Scalar]) -> Scalar:
    """Applies an element-wise operator's rule; converts the operands before and the result after."""
    result = node.results[0]
    assert result is not None
    if node.op is CONVERT or node.op is RESTRIDE:
        return converted(operand(node.args[0]), NAMES[result.dtype])

    def given(arg: Any) -> Any:
        return operand(arg) if isinstance(arg, Value) else arg

    types = [seen_by_rules(arg) if isinstance(arg, Value) else arg for arg in node.args]
    kwargs = {name: given(arg) for name, arg in node.kwargs.items()}
    numbers = [name for name, arg in node.kwargs.items() if isinstance(arg, Value) and isinstance(arg.type, NumberType)]
    return element(node.op, [given(arg) for arg in node.args], kwargs, types, result.type, numbers)


def number_of(index: Index, shape: tuple[int, ...]) -> Affine:
    """The row-major number of an element. An empty index is the only element of a scalar."""
    total, step = (index[0] * 0 if index else Affine(0, ())), 1
    for x, size in zip(reversed(index), reversed(shape), strict=True):
        total, step = total + x * step, step * size
    return total


def located_scalar(node: Node, index: Index, operand: Callable[[Value], Scalar]) -> Scalar:
    """Applies the rule of an operator whose elements are functions of their index. Operands are read at that index."""
    result = node.results[0]
    assert result is not None

    rule: IndexFunction = node.op.rule  # type: ignore[assignment]
    args = [operand(arg) if rule.reads and isinstance(arg, Value) else arg for arg in node.args]
    return rule.rule(ElementPosition(tuple(map(affine_scalar, index)), NAMES[result.dtype]), *args, **node.kwargs)


def affine_scalar(x: Affine) -> Scalar:
    """The value of an index, as i64."""
    terms = [loop_variable(k) if c == 1 else loop_variable(k) * c for k, c in enumerate(x.coefficients) if c]
    if x.offset or not terms:
        terms.append(const(x.offset, "i64"))
    return functools.reduce(operator.add, terms)


def rule_fails(node: Node, why_not_printed: Callable[[Scalar], str | None] = lambda made: None) -> str | None:
    """Tries an element-wise rule by itself; returns why it cannot be used here, or None."""
    # Cached: equal layers and several passes ask for the same uses.
    numbers: dict[Value, int] = {}
    key = (
        node.op.name,
        why_not_printed,
        use_key(node.args, numbers),
        use_key(tuple(node.kwargs.items()), numbers),
        tuple([value and value.type for value in node.results]),
    )
    try:
        return _tried[key]
    except KeyError:
        found = why_not_in_loops(node, why_not_printed)
    except TypeError:  # a constant that has no hash
        return why_not_in_loops(node, why_not_printed)
    if len(_tried) >= MOST_TRIED:
        _tried.clear()
    _tried[key] = found
    return found


MOST_TRIED = 10_000

_tried: dict[tuple, str | None] = {}


def use_key(arg: Any, numbers: dict[Value, int]) -> Any:
    """A key for the arguments of an operator's use: types, which values are the same, and constants."""
    if isinstance(arg, Value):
        example = repr(arg.type.example) if isinstance(arg.type, NumberType) else None
        return numbers.setdefault(arg, len(numbers)), arg.type, example
    if isinstance(arg, (tuple, list)):
        return tuple([use_key(part, numbers) for part in arg])
    # 1, 1.0 and True are distinct, and so are 0.0 and -0.0.
    return type(arg), repr(arg) if isinstance(arg, (float, complex)) else arg


def why_not_in_loops(node: Node, why_not_printed: Callable[[Scalar], str | None]) -> str | None:
    result = node.results[0]
    why = why_not_dtypes(node)
    if why is not None:
        return why
    numbers: dict[Value, Scalar] = {}

    def placeholder(value: Value) -> Scalar:
        return numbers.setdefault(value, load(NAMES[value.dtype], Access(len(numbers), 0, ())))

    try:
        if node.op.shape is not None:
            # Uses outside the shape rule are not covered here, such as dtypes that eager computes otherwise.
            node.op.shape(*types_of(node.args), **{name: types_of(arg) for name, arg in node.kwargs.items()})
        made = pointwise_scalar(node, placeholder)
    except NoRule as error:
        return f"{node.op.name}: {error}"
    if made.dtype != NAMES[result.dtype]:  # type: ignore[union-attr]
        return f"{node.op.name} gives {made.dtype}"
    return why_not_printed(made)


def index_function_fails(node: Node, why_not_printed: Callable[[Scalar], str | None]) -> str | None:
    """The same for a rule whose elements are functions of their index."""
    why = why_not_dtypes(node)
    if why is not None:
        return why
    result = node.results[0]
    assert result is not None
    index = tuple(constant(0, 0) for _ in result.shape)
    try:
        made = located_scalar(node, index, lambda value: load(NAMES[value.dtype], Access(0, 0, ())))
    except NoRule as error:
        return f"{node.op.name}: {error}"
    assert made.dtype == NAMES[result.dtype], node
    return why_not_printed(made)


def why_not_dtypes(node: Node) -> str | None:
    for value in (*node.operands, *node.results):
        if value is None or not has_loops(value.dtype):
            return f"{node.op.name} of {value.dtype if value else None}"
    return None
