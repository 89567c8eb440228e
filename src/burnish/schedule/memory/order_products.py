"""Orders independent products so that large operands are freed before large results are allocated.

    dh = mm(dy, w2)        67 MB                    dw = mm(dy, h)         frees h, 67 MB
    dw = mm(dy, h)         frees h, 67 MB    =>     dh = mm(dy, w2)        67 MB

Autograd asks for the gradient of the operand before that of the weight. Only where torch allocates each value when it
is needed: in an arena their places are fixed.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from ...ir.alias_analysis import storage_of
from ...ir.graph import Node, Value, values_in
from ...ops.burnish_primitives import RUN
from ...ops.target_record import target_of
from ..fusion.fuse_loops import Fusion, Unit
from .elementwise_buffer_reuse import PRODUCTS


def order_products(
    units: Sequence[Unit], fusion: Fusion, kept: Sequence[object], donated: Container[Value]
) -> list[Unit]:
    """The units in their new order. `kept` is needed after all of them; `donated` inputs are freed after their last
    reader."""
    order = list(units)
    reads = {unit.number: read_by(unit, fusion) for unit in order}
    last = {storage: at for at, unit in enumerate(order) for storage in reads[unit.number]}
    last.update((storage_of(value), len(order)) for value in values_in(tuple(kept)))
    last.update((storage, len(order)) for storage in last if storage.node is None and storage not in donated)

    def freed(unit: Unit, at: int) -> int:
        return sum(storage.type.bytes for storage in reads[unit.number] if last[storage] == at)

    for start in range(1, len(order)):
        for at in range(start, 0, -1):
            before, unit = order[at - 1], order[at]
            if not (is_product(before) and is_product(unit)) or unit.needs >> before.number & 1:
                break
            shared = sum(x.type.bytes for x in reads[unit.number] & reads[before.number] if last[x] == at)
            if allocated_bytes(before) <= freed(before, at - 1) or allocated_bytes(unit) >= freed(unit, at) - shared:
                break
            order[at - 1], order[at] = unit, before
            for storage in reads[unit.number] | reads[before.number]:
                if last[storage] in (at - 1, at):
                    last[storage] = at if storage in reads[before.number] else at - 1
    return order


def is_product(unit: Unit) -> bool:
    node = unit.what
    if not isinstance(node, Node) or not (node.op is RUN or node.op.name in PRODUCTS) or node.results[0] is None:
        return False
    target = target_of(node.results[0].type.device)
    return target is not None and not target.has_arena


def allocated_bytes(unit: Unit) -> int:
    assert isinstance(unit.what, Node)
    return sum(value.type.bytes for value in unit.what.results if value is not None)


def read_by(unit: Unit, fusion: Fusion) -> set[Value]:
    """The storages that a unit reads."""
    if isinstance(unit.what, Node):
        return {storage_of(value) for value in unit.what.operands}
    return {storage_of(read) for root in unit.what.roots for read, _ in fusion.reads[root]}
