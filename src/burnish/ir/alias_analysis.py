"""Alias analysis: which values share memory with others.

v = view x, permute[1, 0]         storage_of(v) is x
w = aten.view.dtype v, i32        storage_of(w) is x
y = view x, slice[0: 3, -1, 4]    storage_of(y) is y: torch has no negative strides, so this is a copy
"""

from __future__ import annotations

import functools
from typing import Any

from ..ops.burnish_primitives import ORDER_AFTER, VIEW
from ..ops.operator_record import View
from ..tensors.tensor_types import has_stride
from ..tensors.views.view_maps import view_type
from .graph import Node, Value


def alias_base(value: Value) -> Value | None:
    """The value that this one is a view of; None if it has its own memory."""
    node = value.node
    if node is None:
        return None
    if node.op is VIEW:
        return node.args[0] if is_memory_view(value) else None
    return aliased_argument(node)


def is_memory_view(value: Value) -> bool:
    """Whether a `view` node shares its argument's memory instead of copying it. Strides of size-1 dimensions are
    ignored."""
    node = value.node
    if node is None or node.op is not VIEW:
        return False
    shown = view_type(node.args[1], node.args[0].type)
    return shown is not None and has_stride(shown, value.type.stride)


def storage_of(value: Value) -> Value:
    source = alias_base(value)
    while source is not None:
        value, source = source, alias_base(source)
    return value


def aliased_argument(node: Node) -> Value | None:
    """The argument whose storage the node's results share."""
    if node.op is ORDER_AFTER:
        return node.args[0]
    if node.op.target is None:
        return None
    at = 0 if _is_view(node) else _aliased(node.op.target)
    return None if at is None or at >= len(node.args) or not isinstance(node.args[at], Value) else node.args[at]


def _is_view(node: Node) -> bool:
    """The schema of some views does not say so: `_unsafe_view`, for example."""
    rule = node.op.rule
    return isinstance(rule, View) and rule.is_alias or "maps" in node.op.notes and "is_copy" not in node.op.notes


@functools.cache
def _aliased(func: Any) -> int | None:
    if not any(r.alias_info is not None for r in func._schema.returns):
        return None
    for k, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None:
            return k
    return None
