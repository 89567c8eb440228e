"""Gather fusion: loops load elements at indices where they use them.

    e = aten.embedding.default w, i             wrong = any(i < 0 or i >= 30000)
    y = aten.add.Tensor e, p              =>    check wrong, …                       raises what eager raises
                                                e = fetch w, …
                                                y = aten.add.Tensor e, p             one kernel

A fetch clamps its indices to the source, so it is harmless if the loops run before the check. On a GPU the host does
not wait for a check: the loops assert each index, and a wrong one ends the program as it does in eager.

A gather whose result is only stored stays with the library. If both loops and chosen library calls read the result,
such as a residual of a product, the loops store it for the calls. It is then in the arena, where the library would
allocate memory for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...ir.error_check_nodes import add_check, covers
from ...ir.graph import Graph, Node, Value
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import CHECK, FETCH, REDUCTION_OF, RUN, RUN_ALONG, VIEW
from ...ops.error_conditions import InRange
from ...ops.indexing.gather_lowering import GatherRule, IndirectIndex
from ...ops.operator_record import NoRule, Pointwise
from ...ops.shapes.concat_lowering import ConcatRule
from ...ops.target_record import target_of
from ...tensors.dtypes import has_loops
from ..partition.loop_or_library_call import why_not_loop

INTEGERS = (torch.int64, torch.int32)


def fuse_gathers(graph: Graph) -> Graph:
    """Returns the graph itself where no gather can be fused."""
    fetched = fetched_nodes(graph)
    return Fetcher(graph, fetched).run() if fetched else graph


def fetched_nodes(graph: Graph) -> dict[Node, tuple]:
    picking = [node for node in graph.nodes if isinstance(node.op.rule, GatherRule)]
    if not picking:
        return {}
    readers = graph.readers()
    leaving = set(graph.leaving_values())
    found: dict[Node, tuple] = {}

    def all_readers(value: Value) -> Iterator[Node]:
        for reader in readers.get(value, ()):
            if reader.op is VIEW:
                yield from all_readers(reader.results[0])  # type: ignore[arg-type]
            yield reader

    def is_used_in_loops(value: Value) -> bool:
        reading = list(all_readers(value))
        shown = {value, *(reader.results[0] for reader in reading if reader.op is VIEW)}
        others = [reader for reader in reading if reader.op is not VIEW and not is_computed_in_loops(reader)]
        is_stored_besides = len(others) < sum(reader.op is not VIEW for reader in reading) and all(
            reader.op is RUN for reader in others
        )
        return leaving.isdisjoint(shown) and (not others or is_stored_besides)

    for node in picking:
        value = node.results[0]
        if value is None or not is_used_in_loops(value) and not node.op.rule.is_slow:  # type: ignore[union-attr]
            continue
        picks = picks_of(node)
        if picks is not None:
            found[node] = picks
    return found


def is_computed_in_loops(reader: Node) -> bool:
    is_loop = (
        isinstance(reader.op.rule, (Pointwise, ConcatRule))
        or reader.op.name in REDUCTION_OF
        or reader.op.name in RUN_ALONG
    )
    return is_loop and why_not_loop(reader) is None


def picks_of(node: Node) -> tuple | None:
    try:
        source, places = node.op.rule.rule(*node.args, **node.kwargs)  # type: ignore[union-attr]
    except NoRule:
        return None
    values = (source, *node.results, *(place.index for place in places if isinstance(place, IndirectIndex)))
    if target_of(source.type.device) is None or len({v.type.device for v in values}) > 1:
        return None
    if any(0 in v.shape or not has_loops(v.dtype) for v in values):
        return None
    if any(place.index.dtype not in INTEGERS for place in places if isinstance(place, IndirectIndex)):
        return None
    return source, places


class Fetcher(Rewriter):
    optional = "fuse_gathers"

    def __init__(self, graph: Graph, fetched: dict[Node, tuple]):
        super().__init__(graph)
        self.fetched = fetched
        self.checked: set[tuple] = set()

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Value | None:
        if node.op is CHECK:
            self.checked.add(args[4])
        picks = self.fetched.get(node)
        if picks is None:
            return None
        source, places = picks
        described = []
        for place, size in zip(places, source.shape, strict=True):
            if isinstance(place, IndirectIndex):
                index = self.env[place.index]
                target = target_of(source.type.device)
                asserts = target is not None and not target.has_checks
                if not asserts:
                    self.check(node, args, kwargs, index, -size if place.wraps else 0, size)
                described.append((index, place.dims, size, place.wraps, asserts))
            else:
                described.append(place)
        result = node.results[0]
        assert result is not None
        made = self.build.apply_typed(FETCH, (self.env[source], tuple(described)), {}, (result.type,))[0]
        assert made is not None
        return made

    def check(self, node: Node, args: tuple, kwargs: dict[str, Any], index: Value, low: int, size: int) -> None:
        condition = InRange(index, low, size)
        if covers(condition) not in self.checked:
            add_check(self.build, condition, node.op.name, args, kwargs.items())
