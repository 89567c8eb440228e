"""Concatenation in place: the parts of a concatenated value are written directly into its buffer.

    c1 = cat [a, b]                     a1 = restride a, b1 = restride b     written into the buffer of c3
    c2 = cat [a, b, c]            =>    c1 = assembled (a1, b1)              a view of that buffer: nothing is copied
    c3 = cat [a, b, c, d]               c2 = assembled (a1, b1, c1)

DenseNets concatenate all features so far before each layer. With a shared buffer, a feature is copied once, not once
for each layer. The parts are written at different times, by the steps that make them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir import fuel
from ...ir.alias_analysis import storage_of
from ...ir.graph import Graph, Node, Value
from ...ops.burnish_primitives import ASSEMBLED, REDUCTION_OF, RESTRIDE
from ...ops.operator_record import NoRule, Pointwise
from ...ops.shapes.concat_lowering import Concat, ConcatRule, OperandPart
from ...ops.target_record import target_of
from ...tensors.tensor_types import TensorType, span
from ..partition.loop_or_library_call import why_not_loop

FEWEST = 3
"""Fewest concatenated values for one buffer: it costs a copy of parts that a loop could read where they are."""


@dataclass(slots=True)
class Row:
    """A concatenation of whole values along one dimension."""

    value: Value
    dim: int
    parts: tuple[Value, ...]


@dataclass(eq=False, slots=True)
class ConcatBuffer:
    host: Row
    members: list[tuple[Row, int]] = field(default_factory=list)
    """The concatenated values in this buffer, the host included, and the number of the part each starts with."""
    written: dict[int, Value] = field(default_factory=dict)
    """In the new graph: the parts that are written so far, by their number."""

    def offsets(self) -> list[int]:
        """The offset of each part, in elements."""
        found, at = [], 0
        for part in self.host.parts:
            found.append(at * self.host.value.type.stride[self.host.dim])
            at += part.shape[self.host.dim]
        return found


def concat_in_place(graph: Graph) -> Graph:
    buffers = concat_buffers_of(graph)
    if not buffers:
        return graph
    numbers = {buffer: number for number, buffer in enumerate(buffers)}
    places = {
        row.value: (buffer, numbers[buffer], first, len(row.parts))
        for buffer in buffers
        for row, first in buffer.members
    }
    new = Graph()
    env: dict[Value, Value] = {value: new.copy_input(value) for value in graph.inputs}
    for node in graph.nodes:
        result = node.results[0] if node.results else None
        if result in places:
            env[result] = assemble_parts(new, env, node, *places[result])  # type: ignore[index]
            continue
        new.copy_node(node, env, result and result.name)
    new.copy_ends(graph, env)
    return new


def assemble_parts(
    graph: Graph, env: dict[Value, Value], node: Node, buffer: ConcatBuffer, of: int, first: int, count: int
) -> Value:
    """The value made of parts of its buffer. Parts that are not written yet are written first."""
    host = buffer.host.value.type
    for number in range(first, first + count):
        if number not in buffer.written:
            part = env[buffer.host.parts[number]]
            type = TensorType(part.shape, host.stride, host.dtype, host.device)
            buffer.written[number] = graph.add(RESTRIDE, (part, host.stride), {}, type, node.line, part.name)
    value = node.results[0]
    assert value is not None
    members = tuple(buffer.written[number] for number in range(first, first + count))
    type = TensorType(value.shape, host.stride, host.dtype, host.device)
    offsets = tuple(buffer.offsets()[first : first + count])
    return graph.add(ASSEMBLED, (members, offsets, of), {}, type, node.line, value.name)


def concat_buffers_of(graph: Graph) -> list[ConcatBuffer]:
    readers = graph.readers()
    leaving = {storage_of(v) for v in graph.leaving_values()}
    rows = {row.value: row for node in graph.nodes if (row := row_of(node)) is not None and row.value not in leaving}
    if len(rows) < FEWEST:
        return []
    for row in rows.values():
        row.parts = flattened(row, rows)
    buffers: list[ConcatBuffer] = []
    for row in sorted(rows.values(), key=lambda row: -len(row.parts)):
        buffer, first = next(
            ((buffer, first) for buffer in buffers if (first := place_in(buffer, row, readers, rows)) >= 0), (None, 0)
        )
        if buffer is None:
            buffers.append(buffer := ConcatBuffer(row))
        buffer.members.append((row, first))
    buffers = [buffer for buffer in buffers if len(buffer.members) >= FEWEST]
    return [
        buffer for buffer in buffers if fuel.allows("concat_in_place", buffer.host.value.node, "its parts share memory")
    ]


def row_of(node: Node) -> Row | None:
    value = node.results[0] if node.results else None
    if value is None or not isinstance(node.op.rule, ConcatRule) or why_not_loop(node, most=None) is not None:
        return None
    target = target_of(value.type.device)
    if target is None or not target.has_arena:
        return None
    try:
        part = node.op.rule.rule(*node.args, **node.kwargs)
    except NoRule:
        return None
    if not isinstance(part, Concat):
        return None
    parts = tuple(inner.operand for _, inner in part.parts if isinstance(inner, OperandPart) and not inner.maps)
    is_whole = len(parts) == len(part.parts) and all(x.dtype is value.dtype for x in parts)
    has_gaps = span(value.type.shape, value.type.stride) != value.type.numel
    return Row(value, part.dim, parts) if is_whole and not has_gaps else None


def flattened(row: Row, rows: dict[Value, Row]) -> tuple[Value, ...]:
    """Replaces parts that are concatenations along the same dimension by their own parts."""
    found: list[Value] = []
    for part in row.parts:
        inner = rows.get(part)
        found += flattened(inner, rows) if inner is not None and inner.dim == row.dim else [part]
    return tuple(found)


def place_in(buffer: ConcatBuffer, row: Row, readers: dict[Value, list[Node]], rows: dict[Value, Row]) -> int:
    """The part of the host that the row starts with, if it can be a view of the host; else -1. Its strides become the
    host's, so only loops may read it."""
    host = buffer.host
    if row.dim != host.dim or row.value.ndim != host.value.ndim:
        return -1
    for reader in readers.get(row.value, ()):
        result = reader.results[0] if reader.results else None
        is_inside = result in rows and any(result is member.value for member, _ in buffer.members)
        is_loop = isinstance(reader.op.rule, Pointwise) or reader.op.name in REDUCTION_OF
        if not is_inside and (not is_loop or why_not_loop(reader) is not None):
            return -1
    count = len(row.parts)
    for first in range(len(host.parts) - count + 1):
        if host.parts[first : first + count] == row.parts:
            return first
    return -1
