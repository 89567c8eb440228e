"""The lowering passes in order, each with the reason for its position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from .. import events
from ..errors import InternalError
from ..ir.graph import Graph
from ..ir.joint_graph_signature import Gradients
from ..ir.verify_and_publish_graph import announce
from ..settings import current
from .passes.accumulate_embedding_gradients import accumulate_embedding_gradients
from .passes.canonicalize_products import canonicalize_products
from .passes.clamp_subnormal_softmax import clamp_subnormal_softmax
from .passes.combine_rng_seeds import combine_rng_seeds
from .passes.decompose import decompose
from .passes.drop_recompute_barriers import drop_recompute_barriers
from .passes.eliminate_dead_and_common_nodes import eliminate_dead_and_common_nodes
from .passes.fold_batch_norm import fold_batch_norm
from .passes.functionalize import functionalize
from .passes.fuse_dequantization import fuse_dequantization
from .passes.unalias_outputs import unalias_outputs, why_not_unaliased
from .trace.trace_to_aten import trace

PASSES = (
    functionalize,  # first: every later pass relies on values that never change
    eliminate_dead_and_common_nodes,  # before decomposing, so that equal operators are decomposed once
    decompose,
    eliminate_dead_and_common_nodes,  # decompositions repeat each other's parts: casts, sums of one tensor
    combine_rng_seeds,
    canonicalize_products,  # one form for all products, so that later passes know only two operators
    fuse_dequantization,  # before weights are folded: a quantized one must not become a frozen tensor of floats
    fold_batch_norm,  # before calls are chosen: the folded weight is what gets packed
    accumulate_embedding_gradients,  # before dead code goes: the matrices that the rows were scattered into
    eliminate_dead_and_common_nodes,  # removes what folding and accumulating have left without readers
    clamp_subnormal_softmax,  # after dead code is gone, which would count as a reader
    drop_recompute_barriers,  # no pass merges equal nodes from here on
)
# `unalias_outputs` runs last: other passes may replace a value by an equal one, which changes what outputs share.


@dataclass(slots=True)
class Lowered:
    graph: Graph
    constants: dict[int, Any]
    """The graph's last inputs, by position: tensors that the captured graph contained."""
    gradients: Gradients | None
    traced: Graph
    """The graph before any pass."""


@events.stage("lower")
def lower(
    gm: GraphModule, example_inputs: Sequence[Any], gradients: bool = False, live_scalar_types: tuple[type, ...] = ()
) -> Lowered:
    """The functional graph of a captured one; with gradients, if they are requested and flow."""
    traced = trace(gm, example_inputs, gradients, live_scalar_types)
    graph = traced.graph
    announce("trace", graph, strides=True)  # with eager's strides: passes may change them
    for step in PASSES:
        before, graph = graph, step(graph)
        announce(step.__name__, graph, before)
        if before is not graph and before is not traced.graph and not events.is_watched("lower"):
            before.break_reference_cycles()
    first = None if traced.gradients is None else traced.gradients.outputs
    before, graph = graph, unalias_outputs(graph, traced.graph, len(traced.constants), first)
    announce("unalias_outputs", graph, before)  # it keeps the old graph's nodes
    if current().check and (why := why_not_unaliased(graph, traced.graph)) is not None:
        raise InternalError("unalias_outputs", why)
    constants = dict(enumerate(traced.constants, len(graph.inputs) - len(traced.constants)))
    return Lowered(graph, constants, traced.gradients, traced.graph)
