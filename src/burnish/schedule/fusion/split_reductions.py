"""Reduction splitting: a reduction over few, long rows is computed in two steps, so that it can run in parallel.

    s = sum x, (0, 1)      x: f32[2048, 1024]      =>    v = view x, reshape[64, 32, 1024]
                                                         p = sum v, (1, 2)                    f32[64, 1, 1]
                                                         q = sum p, (0,)                      f32[1, 1, 1]
                                                         s = view q, reshape[1, 1]

A loop runs its rows in parallel, and each row sequentially. The 64 partial sums are rows like any others: elements that
are computed and stored on the way are still handled in the same loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir import fuel
from ...ir.graph import Graph, Node, Value
from ...ir.rewriter import Rewriter
from ...ir.verify_and_publish_graph import announce
from ...ops.burnish_primitives import REDUCTION_OF
from ...ops.target_record import CPU, target_of
from ...tensors.fit_size_formulas import Space
from ...tensors.views.view_maps import Reshape
from .fusion_groups import goes_along

LONG = 1 << 16
"""Elements of all rows together. At this size a second kernel costs a fifth of the reduction."""


Cut = tuple[tuple[int, int], ...]
"""The dimensions to split, and the number of parts of each."""

Cuts = Mapping[Node, Cut]
"""The split of each node that is split."""


class ReductionSplitter(Rewriter):
    optional = "split_reductions"

    def __init__(self, graph: Graph, cuts: Cuts):
        super().__init__(graph)
        self.cuts = cuts

    def rewrite(self, node: Node, args: tuple, kwargs: dict) -> Value | None:
        parts = dict(self.cuts.get(node, ()))
        if not parts:
            return None
        x, dims = args
        result = node.results[0]
        assert result is not None
        finer: list[int] = []
        over: list[int] = []
        rest: list[int] = []
        for k, size in enumerate(x.shape):
            if k in parts:
                rest.append(len(finer))
                finer.append(parts[k])
                size //= parts[k]
            if k in dims:
                over.append(len(finer))
            finer.append(size)
        op = node.op
        apart = self.build.apply(op, (self.build.reshape(x, tuple(finer)), tuple(over)))
        return self.build.view(self.build.apply(op, (apart, tuple(rest))), Reshape(result.shape))


def split_reductions(graph: Graph) -> Graph:
    """Returns the graph itself where nothing is split."""
    cuts = {node: cut for node in graph.nodes if (cut := cut_of(node)) is not None}
    return ReductionSplitter(graph, cuts).run() if cuts else graph


def split_symbolic_reductions(graphs: Sequence[Graph], space: Space) -> list[Graph]:
    """Splits reductions in the graphs of one function at several sizes, on GPUs only: a CPU's few threads have enough
    work. A reduction is split in all graphs or in none, into a number of parts that divides every size."""
    if len({len(graph.nodes) for graph in graphs}) > 1:
        return list(graphs)
    cuts: list[dict[Node, Cut]] = [{} for _ in graphs]
    for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
        if cut_of(nodes[0]) is None or (target_of(nodes[0].args[0].type.device) or CPU).name == CPU.name:
            continue
        if any(node.op is not nodes[0].op or node.args[1] != nodes[0].args[1] for node in nodes):
            continue
        sizes = map(space.fit, zip(*(node.args[0].shape for node in nodes), strict=True))
        cut = cut_of(nodes[0], [size if isinstance(size, int) else size.divisor for size in sizes])
        if cut is not None:
            for found, node in zip(cuts, nodes, strict=True):
                found[node] = cut
    pairs = fuel.same_for_each(zip(graphs, cuts, strict=True))
    divided = [ReductionSplitter(graph, found).run() if found else graph for graph, found in pairs]
    for before, graph in zip(graphs, divided, strict=True):
        announce("split_symbolic_reductions", graph, before)
    return divided


def cut_of(node: Node, divisors: Sequence[int] | None = None) -> Cut | None:
    """The dimensions to split and the number of parts; None where it does not pay. `divisors` has a divisor of the size
    of each dimension, where the size itself is symbolic."""
    if node.op.name not in REDUCTION_OF or REDUCTION_OF[node.op.name] in ("argmax", "argmin"):
        return None
    x, dims = node.args
    target = target_of(x.type.device)
    if target is None or x.type.numel < LONG:
        return None
    rows = math.prod(n for k, n in enumerate(x.shape) if k not in dims)
    is_along = goes_along(node.results[0])  # type: ignore[arg-type]
    strips = rows if is_along else -(-rows // target.side_by_side)
    if strips >= target.fewest_rows:
        return None
    long = math.prod(x.shape[k] for k in dims)
    if long <= target.short[not is_along] or any(0 in v.shape for v in (x, *node.results)):
        return None
    most = min(long // target.least_part[not is_along], target.most_programs // max(strips, 1))
    even = {dim: [parts for parts in target.parts if (divisors or x.shape)[dim] % parts == 0] for dim in dims}
    found = [(parts, dim) for dim in dims for parts in even[dim] if x.shape[dim] > parts and parts <= most]
    if not found:
        return None
    # Among equals choose the dimension with the largest stride, so that each part is contiguous.
    parts, _, first = max((parts, x.type.stride[dim], dim) for parts, dim in found)
    cut = {first: parts}
    if target.cuts_several:
        for dim in sorted(dims, key=lambda dim: -x.type.stride[dim]):
            more = max((n for n in even[dim] if dim not in cut and parts * n <= most), default=1)
            if more > 1:
                cut[dim] = more
                parts *= more
    return tuple(cut.items())
