"""The passes in order, each with the reason why it stands there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from .. import events
from ..errors import InternalError
from ..ir.announce_stage import announce
from ..ir.gradient_signature import Gradients
from ..ir.graph import Graph
from ..settings import current
from .passes.accumulate_embedding_gradients import accumulate_embedding_gradients
from .passes.avoid_subnormal_weights import avoid_subnormal_weights
from .passes.canonicalize_products import canonicalize_products
from .passes.combine_rng_seeds import combine_rng_seeds
from .passes.decompose import decompose
from .passes.drop_recompute_barriers import drop_recompute_barriers
from .passes.eliminate_dead_and_common_nodes import eliminate_dead_and_common_nodes
from .passes.fold_batch_norm import fold_batch_norm
from .passes.functionalize import functionalize
from .passes.unalias_outputs import unalias_outputs, why_not_unaliased
from .trace.trace_to_aten import trace

PASSES = (
    functionalize,  # first: every later pass relies on values that never change
    eliminate_dead_and_common_nodes,  # before decomposing, so that equal operators are taken apart once
    decompose,
    eliminate_dead_and_common_nodes,  # decompositions repeat each other's parts: casts, sums of one tensor
    combine_rng_seeds,
    canonicalize_products,  # one form for all products, so that what follows knows two operators
    fold_batch_norm,  # before a call is chosen: the folded weight is what gets packed
    accumulate_embedding_gradients,  # before dead code goes: the matrices that the rows were spread over
    eliminate_dead_and_common_nodes,  # what was folded leaves its old parts behind, as do rows that were added
    avoid_subnormal_weights,  # after dead code is gone, which would count as a reader
    drop_recompute_barriers,  # no pass joins equal nodes from here on
)
# Then `unalias_outputs`, last: passes may take one value for another, and only now is it known which.


@dataclass(slots=True)
class Lowered:
    graph: Graph
    constants: dict[int, Any]
    """What the graph's last inputs are, by their positions: tensors that the captured graph brought along."""
    gradients: Gradients | None
    traced: Graph
    """As it was before any pass."""


def lower(
    gm: GraphModule, example_inputs: Sequence[Any], gradients: bool = False, open_numbers: tuple[type, ...] = ()
) -> Lowered:
    """The functional graph of a captured one; with its gradients, if they are asked for and flow."""
    traced = trace(gm, example_inputs, gradients, open_numbers)
    graph = traced.graph
    announce("trace", graph, strides=True)  # as in eager: passes may give values other strides
    for step in PASSES:
        before, graph = graph, step(graph)
        announce(step.__name__, graph, before)
        let_go(before, (graph, traced.graph))
    first = None if traced.gradients is None else traced.gradients.outputs
    before, graph = graph, unalias_outputs(graph, traced.graph, len(traced.constants), first)
    announce("unalias_outputs", graph, before)  # its nodes are the old graph's
    if current().check and (why := why_not_unaliased(graph, traced.graph)) is not None:
        raise InternalError("unalias_outputs", why)
    constants = dict(enumerate(traced.constants, len(graph.inputs) - len(traced.constants)))
    return Lowered(graph, constants, traced.gradients, traced.graph)


def let_go(graph: Graph, needed: Sequence[Graph]) -> None:
    """Take a graph apart that has become another one. Nodes and their values refer to each other: they would wait for
    the collector, which would look at all of them once the compiler is done."""
    if not events.is_watched("lower") and all(graph is not other for other in needed):
        for node in graph.nodes:
            node.results = ()
