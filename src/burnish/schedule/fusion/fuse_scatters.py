"""Scatter fusion: loops add the elements that they compute at indices, with atomics.

    m = aten.mul.Tensor e, w                     z2 = held z
    y = aten.index_add z, 0, i, m         =>     m = aten.mul.Tensor e, w
                                                 a = add_at z2, m, …                 one kernel, adds as it computes
                                                 y = held z2, a

Only on targets with atomics, and only for operators that add in no particular order in eager either: index_add and
scatter_add on a GPU. With `torch.use_deterministic_algorithms` they stay with the library. So do sources that have
another reader or are already in memory: fusion would save nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from ...ir.graph import Graph, Node, Value, values_in
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import ADD_AT, FETCH, ORDER_AFTER, RESTRIDE
from ...ops.operator_record import Pointwise, wrapped_dim
from ...ops.target_record import target_of
from ..memory.in_place_library_calls import is_own
from ..partition.loop_or_library_call import why_not_loop

ADDABLE = (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64)


def fuse_scatters(graph: Graph) -> Graph:
    """Returns the graph itself where no scatter can be fused."""
    found = {node: places for node in graph.nodes if (places := places_of(node)) is not None}
    if not found or torch.are_deterministic_algorithms_enabled():
        return graph
    uses = Counter(value for node in graph.nodes for value in node.operands)
    uses.update(values_in(tuple(graph.outputs)))
    written = {write.value for write in graph.writes}
    uses.update(written)
    chosen = {
        node: places
        for node, places in found.items()
        if node.results[0] not in written and uses[node.args[3]] == 1 and is_computed(node.args[3])
    }
    return Scatterer(graph, chosen, uses).run() if chosen else graph


def places_of(node: Node) -> tuple[int, bool] | None:
    """The dimension along which it adds, and whether each element has its own index."""
    if node.op.name not in ("aten.index_add.default", "aten.scatter_add.default") or node.kwargs:
        return None
    x, dim, index, source = node.args[:4]
    result = node.results[0]
    if result is None or not all(isinstance(value, Value) for value in (x, index, source)):
        return None
    target = target_of(x.type.device)
    if target is None or not target.has_atomics or len({v.type.device for v in (x, index, source, result)}) > 1:
        return None
    if x.dtype not in ADDABLE or source.dtype != x.dtype or x.ndim == 0 or 0 in (*x.shape, *source.shape):
        return None
    dim = wrapped_dim(dim, x.ndim)
    rest = [n for k, n in enumerate(x.shape) if k != dim]
    if node.op.name == "aten.scatter_add.default":
        fits = (
            index.shape == source.shape
            and index.dtype is torch.int64
            and [n for k, n in enumerate(source.shape) if k != dim] == rest
        )
    else:
        fits = (
            index.ndim == 1
            and index.dtype in (torch.int64, torch.int32)
            and source.ndim == x.ndim
            and [n for k, n in enumerate(source.shape) if k != dim] == rest
            and source.shape[dim] == index.shape[0]
        )
    return (dim, node.op.name == "aten.scatter_add.default") if fits else None


def is_computed(value: Value) -> bool:
    node = value.node
    return node is not None and (isinstance(node.op.rule, Pointwise) or node.op is FETCH) and why_not_loop(node) is None


class Scatterer(Rewriter):
    optional = "fuse_scatters"

    def __init__(self, graph: Graph, chosen: dict[Node, tuple[int, bool]], uses: Counter):
        super().__init__(graph)
        self.chosen, self.uses = chosen, uses

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Value | None:
        where = self.chosen.get(node)
        if where is None:
            return None
        dim, has_own = where
        x, result = node.args[0], node.results[0]
        assert result is not None
        base = self.env[x]
        if self.uses[x] > 1 or not is_own(x) or x.type != result.type:
            base = self.build.apply(RESTRIDE, (base, result.type.stride))
        base = self.build.apply(ORDER_AFTER, (base, base))
        own = tuple(range(x.ndim)) if has_own else (dim,)
        picked = (self.env[node.args[2]], own, x.shape[dim], False, True)
        places = tuple(picked if k == dim else k for k in range(x.ndim))
        added = self.build.apply(ADD_AT, (base, self.env[node.args[3]], places))
        return self.build.apply(ORDER_AFTER, (base, added))
