"""Storage offsets of views: a trace has no memory, but the gradient of `as_strided` depends on them.

y = x * 2; v = y[1:]; v.as_strided((2,), (1,), 0)      v starts at 1, and the result at 0, before it
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir.alias_analysis import storage_of
from ...ir.graph import Node, Value
from ...ir.untraceable_graph import Untraceable
from ...tensors.views.view_maps import view_offset
from ..passes.functionalize import view_chains

AS_STRIDED = torch.ops.aten.as_strided.default


def result_offsets(node: Node, offset: int) -> Sequence[int]:
    """The offsets of a view's results, whose source starts at `offset`."""
    x = node.args[0]
    if node.op.target is AS_STRIDED:
        given = node.kwargs.get("storage_offset", node.args[3] if len(node.args) > 3 else None)
        return (offset if given is None or isinstance(given, Value) else given,)
    chains = view_chains(node)
    if chains is None:
        return [offset * x.dtype.itemsize // shown.dtype.itemsize if shown is not None else 0 for shown in node.results]
    return [offset + view_offset(tuple(maps), x.type) for maps in chains]


def check_offset(x: Value, offset: int | Value | None) -> None:
    """An input may have another offset in the next call, and its gradient would go elsewhere."""
    if offset is not None and storage_of(x).node is None:
        raise Untraceable("gradients flow into as_strided() of an input with an offset in its memory")
