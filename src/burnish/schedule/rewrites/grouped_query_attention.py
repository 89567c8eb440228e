"""Grouped-query attention: finds keys and values that a graph repeats for several heads of queries.

    e = view k, reshape[2, 4, 1, 48, 16] expand[2, 4, 3, 48, 16]
    c = aten.clone.default e                                       k_all = repeated(e), read from the base of e
    k_all = view c, reshape[2, 12, 48, 16]

Both `repeat_kv` of transformers and torch's `enable_gqa` do this. A kernel that knows which head reads which keys needs
no copy.
"""

from __future__ import annotations

from ...ir.graph import Value
from ...ops.burnish_primitives import VIEW

COPY = "aten.clone.default"


def before_repeating(value: Value) -> Value | None:
    """Given heads [B, K * G, S, E], the expanded [B, K, G, S, E] that was copied into them, each G times."""
    if value.ndim != 4 or value.node is None or value.node.op is not VIEW:
        return None
    copied = value.node.args[0]
    if copied.node is None or copied.node.op.name != COPY or copied.ndim != 5 or not copied.type.is_contiguous:
        return None
    expanded = copied.node.args[0]
    batch, heads, times, rows, size = expanded.shape
    is_repeated = (
        times > 1
        and expanded.type.stride[2] == 0
        and value.type.is_contiguous
        and value.shape == (batch, heads * times, rows, size)
    )
    return expanded if is_repeated else None
